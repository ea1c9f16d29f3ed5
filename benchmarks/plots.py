"""Appends and loads against the length of the history, as pictures and in the terminal."""

from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure import Row

KINDS = {
    "append": ("appends a second", "append.png"),
    "load": ("milliseconds to load", "load.png"),
}
Lines = dict[str, list[tuple[int, float]]]


def draw(rows: Iterable[Row], folder: Path) -> None:
    """`append.png` and `load.png` in a folder, and the same on the terminal."""
    rows = list(rows)
    folder.mkdir(parents=True, exist_ok=True)
    for kind, (label, name) in KINDS.items():
        lines = lines_of(rows, kind)
        if lines:
            _picture(lines, label, folder / name)
            _on_terminal(lines, label)


def lines_of(rows: Iterable[Row], kind: str) -> Lines:
    """By store: lengths of history and what was measured."""
    lines: Lines = {}
    for row in rows:
        what, _, store = row.name.partition("/")
        prefix, _, length = what.rpartition("-")
        if prefix == f"peer-{kind}" and length.isdigit():
            lines.setdefault(store, []).append((int(length), row.value))
    return {store: sorted(points) for store, points in lines.items()}


def _picture(lines: Lines, label: str, file: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 4.5))
    for store, points in lines.items():
        lengths, values = zip(*points, strict=True)
        axes.plot(
            lengths, values, marker="o", linewidth=3 if store == "foldlog" else 1.3, label=store
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("messages in the conversation")
    axes.set_ylabel(label)
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=130)
    pyplot.close(figure)


def _on_terminal(lines: Lines, label: str) -> None:
    import plotext

    plotext.clear_figure()
    for store, points in lines.items():
        lengths, values = zip(*points, strict=True)
        plotext.plot(lengths, values, label=store, marker="braille")
    plotext.xscale("log")
    plotext.yscale("log")
    plotext.title(f"{label} against messages in the conversation")
    plotext.plotsize(100, 26)
    plotext.show()
