"""Draws charts as a PNG by matplotlib, if it is installed."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from typing import Any

from motet.errors import OptionError
from motet.lab.display.charts import Chart, ChartGroup


def picture_of(groups: Sequence[ChartGroup]) -> bytes:
    """The bytes of the picture: a row of charts for each kernel. Raises OptionError without matplotlib."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        plots: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise OptionError("PNG: the package matplotlib is not installed; install it with: pip install matplotlib, or "
                          "write .html") from None
    columns = max(len(group.charts) for group in groups)
    figure, axes = plots.subplots(
        len(groups), columns, figsize=(5 * columns, 3.6 * len(groups)), squeeze=False, layout="constrained")
    for row, group in zip(axes, groups, strict=True):
        for number, axis in enumerate(row):
            if number < len(group.charts):
                _draw(axis, group.charts[number])
            else:
                axis.set_axis_off()
        row[0].set_ylabel(f"{group.title[:40]}\n{group.charts[0].y}")
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=100)
    plots.close(figure)
    return data.getvalue()


def _draw(axis: Any, chart: Chart) -> None:
    axis.set_title(chart.title)
    axis.set_xlabel(chart.x)
    for name, series in chart.series:
        xs, ys = [x for x, _ in series], [y for _, y in series]
        if chart.kind == "parallel":
            axis.plot(xs, ys, color="tab:blue", alpha=float(name) ** 3)
        elif chart.kind == "bars":
            axis.bar(range(len(ys)), ys)
            axis.set_xticks([0, len(xs) - 1], [f"{xs[0]:.3g}", f"{xs[-1]:.3g}"])
        elif name in ("best", "limit"):
            axis.plot(xs, ys, color="tab:red")
        else:
            axis.plot(xs, ys, "o", markersize=3)
    if chart.kind == "parallel":
        axis.set_xticks(range(len(chart.axes)), [name.rpartition(".")[2] for name, _ in chart.axes], rotation=30)
    elif chart.kind != "bars":
        axis.set_xscale("log" if "x" in chart.logarithmic else "linear")
        axis.set_yscale("log" if "y" in chart.logarithmic else "linear")
