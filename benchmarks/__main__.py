"""`python -m benchmarks NAME --json`: one benchmark; without a name, all of them."""

from benchmarks.run import main

main()
