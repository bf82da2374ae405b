"""Draws the pictures of the page."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import matplotlib as mpl

from benchmarks.frame.part import Picture

# No window, and the same file for the same figures.
mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "benchmarks"
mpl.rcParams["svg.fonttype"] = "none"

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

#: Readable on a white and on a dark page, and distinct without colour by the markers.
_COLOURS = ("#0b84a5", "#d9822b", "#8a6fd1", "#3f9b5c", "#c0504d", "#7f7f7f")
_MARKERS = "os^Dvx"
_INK = "#808080"
#: Which parts of each power of ten a logarithmic axis has labels for.
_LABELLED = (1.0, 2.0, 5.0)


def line_chart(
    name: str,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    alt: str,
    across: str,
    up: str,
    log_across: bool = False,
    log_up: bool = False,
) -> Picture:
    """Draw a line for each name through its points (x, y).

    Args:
        name: The file's name.
        alt: Describes the picture.
        across: The label of the x axis, with its unit.
        up: The label of the y axis, with its unit.
    """
    figure, axes = plt.subplots(figsize=(8.4, 3.8), layout="constrained")
    for index, (label, points) in enumerate(lines.items()):
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            label=label,
            color=_COLOURS[index % len(_COLOURS)],
            marker=_MARKERS[index % len(_MARKERS)],
            linestyle="-" if index < len(_COLOURS) else "--",
        )
    for axis, is_log in ((axes.xaxis, log_across), (axes.yaxis, log_up)):
        if is_log:
            (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
            axis.set_major_locator(LogLocator(subs=_LABELLED))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.set_minor_formatter(NullFormatter())
    if not log_up:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(across, color=_INK)
    axes.set_ylabel(up, color=_INK)
    axes.tick_params(colors=_INK, which="both")
    axes.grid(color=_INK, alpha=0.25)
    for spine in axes.spines.values():
        spine.set_color(_INK)
    # Beside the lines, because they may be anywhere.
    axes.legend(frameon=False, labelcolor=_INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    return Picture(name, alt, drawn.getvalue())
