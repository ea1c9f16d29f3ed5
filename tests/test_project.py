"""The repository itself: its layout, and what must not be in it."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("events/foldlog_events", "projections/foldlog_projections", "services/foldlog")
LONGEST_MODULE = 400


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, text=True
    )
    if listed.returncode:
        pytest.skip("no git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("package", PACKAGES)
def test_each_root_holds_one_typed_package(package: str) -> None:
    folder = ROOT / package
    assert (folder / "__init__.py").is_file()
    assert (folder / "py.typed").is_file()
    others = [
        entry.name
        for entry in folder.parent.iterdir()
        if entry.is_dir() and entry != folder and any(entry.glob("*.py"))
    ]
    assert not others, "a second top-level package would be installed beside ours"


def test_the_wheel_holds_exactly_the_three_packages() -> None:
    hatch = project()["tool"]["hatch"]["build"]
    assert tuple(hatch["targets"]["wheel"]["only-include"]) == PACKAGES
    roots = [package.split("/")[0] for package in PACKAGES]
    assert hatch["targets"]["wheel"]["sources"] == roots
    assert hatch["dev-mode-dirs"] == roots


def test_the_client_needs_few_dependencies() -> None:
    names = {re.split(r"[\[<>=~ ]", line)[0] for line in project()["project"]["dependencies"]}
    assert names == {"msgspec", "nats-py", "stamina", "uuid-utils"}


def test_constraints_are_names_and_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", line), line
    names = [re.sub(r"[._-]+", "-", line.split("==")[0]).lower() for line in lines]
    assert len(names) == len(set(names))


def pinned_in(constraints: str) -> set[str]:
    lines = (ROOT / constraints).read_text().splitlines()
    return {re.sub(r"[._-]+", "-", line.split("==")[0]).lower() for line in lines}


def test_every_dependency_is_pinned() -> None:
    described = project()["project"]
    wanted = {"": described["dependencies"], **described["optional-dependencies"]}
    for extra, requirements in wanted.items():
        # The peers of the benchmarks want other versions, and have an environment of their own.
        pinned = pinned_in("constraints-bench.txt" if extra == "bench" else "constraints.txt")
        for requirement in requirements:
            name = re.split(r"[\[<>=~; ]", requirement)[0]
            assert re.sub(r"[._-]+", "-", name).lower() in pinned | {"foldlog"}, name


def test_modules_fit_a_few_screens() -> None:
    roots = tuple(ROOT / package for package in PACKAGES)
    modules = [
        path
        for path in tracked()
        if path.suffix == ".py" and any(path.is_relative_to(root) for root in roots)
    ]
    assert modules
    long = {
        str(path.relative_to(ROOT)): length
        for path in modules
        if (length := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST_MODULE
    }
    assert not long


# The registries are written in two pieces, so that this file does not hold what it looks for.
UNWANTED = {
    "a path of the machine it was written on": re.compile(r"(?<![\w.])/(?:root|work|tmp)/\w"),
    "a package registry": re.compile(
        r"(?:index" + r"-url|pypi" + r"\.org|files\.python" + r"hosted|registry\.npm" + r"js)"
    ),
}


@pytest.mark.parametrize("what", UNWANTED)
def test_no_file_holds(what: str) -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if UNWANTED[what].search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}")
    assert not found


def test_the_two_commands_need_no_step_between() -> None:
    """`make demo` and `make test` make the environment; the plan of a dry run shows it."""
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    for target, last in (("demo", "foldlog demo"), ("test", "-m pytest")):
        plan = subprocess.run(
            ["make", "-n", "VENV=build/none-yet", target],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        assert "-m venv" in plan
        assert plan.index("-m venv") < plan.index("--editable") < plan.rindex(last)
        assert plan.endswith(last)
