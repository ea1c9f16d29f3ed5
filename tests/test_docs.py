"""The documentation and the examples are executed: what they show works as they show it."""

import asyncio
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.command_line import environment, foldlog

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)

NOT_RUN = ("make ", "pip ", "foldlog up", "foldlog demo", "docker ", "kubectl ")
"""Commands whose own tests run them: they install, or run until they are stopped."""


def blocks(page: Path, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall(page.read_text()) if kind == language]


async def run_python(code: str, url: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"url = {url!r}\n{code}",
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(FOLDLOG_URL=url),
    )
    _, err = await process.communicate()
    assert process.returncode == 0, err.decode()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_python_blocks_run(page: Path, nats_url: str) -> None:
    for code in blocks(page, "python"):
        await run_python(code, nats_url)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_console_blocks_run(
    page: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for line in "\n".join(blocks(page, "console")).splitlines():
        command = line.removeprefix("$ ").split(" # ")[0].strip()
        if not line.startswith("$ ") or command.startswith(NOT_RUN):
            continue
        arguments = [word for part in shlex.split(command) for word in expanded(part)]
        assert arguments[0] == "foldlog", f"{page.name}: a command that no test runs: {line}"
        outcome = await foldlog(*arguments[1:], FOLDLOG_URL=nats_url)
        assert outcome.code == 0, f"{line}\n{outcome.err}"


def expanded(word: str) -> list[str]:
    """A shell's expansion of `*`."""
    return [str(path) for path in sorted(ROOT.glob(word))] if "*" in word else [word]


def test_make_targets_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = {
        target
        for page in PAGES
        for target in re.findall(r"`make ([\w-]+)`|^\$ make ([\w-]+)", page.read_text(), re.M)
        for target in target
        if target
    }
    assert {"demo", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"


@pytest.mark.parametrize(
    "code", [path.read_text() for path in EXAMPLES], ids=[path.name for path in EXAMPLES]
)
async def test_examples_run(code: str, nats_url: str) -> None:
    await run_python(code, nats_url)
