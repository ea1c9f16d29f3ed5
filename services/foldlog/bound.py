"""Run a command that ends when its parent does, even where the parent is killed.

`python -I -S bound.py PARENT SIGNAL COMMAND...` asks the kernel to send the signal on the
parent's death and then becomes the command. Only Linux offers that; elsewhere the command just
runs, and who starts next finds it by its lock. It is a program of its own, and no function run
between fork and exec, because that is not safe in a process with threads.
"""

import os
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Bind to the parent and become the command."""
    parent, signal, *command = arguments
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal))
        if os.getppid() != int(parent):
            sys.exit("the parent is gone")
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
