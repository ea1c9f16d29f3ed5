"""`foldlog export` and `foldlog restore`: a backup, and back."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from foldlog.backup.exporting import export as export_backup
from foldlog.backup.restoring import restore as restore_backup
from foldlog.cli.app import CHECK_FAILED, DONE, UsageError
from foldlog.cli.common import Common
from foldlog.cli.output import one_line, print_json, progress, say


async def export(
    folder: Annotated[Path, Parameter(help="A folder that is new or empty.")],
    /,
    *conversations: str,
    all_tenants: Annotated[bool, Parameter(help="Of every tenant.", negative=())] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Write conversations (all of the tenant, where none is named) to a folder, as a backup.

    One file of JSON lines for each, with every entry's version, and the artifacts that they refer
    to. Others may go on writing; what they write after the start is not in it. With --json:
    {"conversations", "entries", "artifacts", "missing"}.
    """
    if conversations and all_tenants:
        raise UsageError("name conversations of one tenant, or export those of all tenants")
    async with common.opened() as foldlog:
        with progress() as bar:
            task = bar.add_task("exporting", total=None)
            manifest = await export_backup(
                foldlog,
                folder,
                conversations or None,
                all_tenants=all_tenants,
                progress=lambda done, of: bar.update(task, completed=done, total=of),
            )
    entries = sum(one.entries for one in manifest.conversations)
    counts = {
        "conversations": len(manifest.conversations),
        "entries": entries,
        "artifacts": len(manifest.artifacts),
        "missing": manifest.missing,
    }
    if common.json:
        print_json(counts)
        return
    for digest in manifest.missing:
        say(f"artifact {digest} is referred to and was not stored any more")
    print(
        f"{entries} entries of {len(manifest.conversations)} conversations and "
        f"{len(manifest.artifacts)} artifacts in {folder}"
    )


async def restore(
    folder: Annotated[Path, Parameter(help="A folder that `foldlog export` wrote.")],
    /,
    *,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Append what a backup holds to this log, and compare every context with what it was.

    All of the backup is checked before anything is written. Conversations must not be in the log
    yet, but for what a restore of this backup that was broken off has put there. Ends with 1 where
    a context differs. With --json: {"conversations", "entries", "appended", "artifacts",
    "different"}.
    """
    async with common.opened() as foldlog:
        with progress() as bar:
            task = bar.add_task("restoring", total=None)
            restored = await restore_backup(
                foldlog,
                folder,
                progress=lambda done, of: bar.update(task, completed=done, total=of),
            )
    if common.json:
        print_json(restored)
    else:
        for one in restored.different:
            say(f"the context of {one_line(one.conversation, 80)} is not what it was")
        print(
            f"{restored.appended} of {restored.entries} entries of {restored.conversations} "
            f"conversations appended, {restored.artifacts} artifacts stored"
        )
    return CHECK_FAILED if restored.different else DONE
