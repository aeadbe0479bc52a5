"""Writes charts as one HTML page with inline SVG, without scripts or other files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from importlib import resources

from motet.lab.display.charts import Chart, ChartGroup

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 560, 320, 64, 44, 12, 24
_STYLE = """
.charts { display: flex; flex-wrap: wrap; gap: 14px; margin-top: 12px; }
figure { flex: 1 1 400px; max-width: 560px; min-width: 0; margin: 0; }
figcaption { font-weight: 600; margin-bottom: 4px; }
svg { width: 100%; height: auto; display: block; background: var(--panel); border: 1px solid var(--line);
  border-radius: 7px; }
text { font-size: 11px; fill: var(--quiet); } .axis { stroke: var(--edge); } .grid { stroke: var(--line); }
.trial { fill: var(--accent); } .best, .path { fill: none; stroke: var(--accent); }
.best { stroke: var(--generic); stroke-width: 2; }
"""


def theme() -> str:
    """The style sheet of all pages: colours in both themes, text, tables of facts."""
    return resources.files("motet.lab.display").joinpath("theme.css").read_text("utf-8")


def page_of(title: str, groups: Sequence[ChartGroup], facts: Sequence[tuple[str, str]] = ()) -> str:
    """The page; `facts`, names and texts, stand in its head."""
    head = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    parts = [f'<section><h2>{escape(group.title)}</h2><p>{escape(group.summary)}</p><div class="charts">'
             + "".join(f"<figure><figcaption>{escape(chart.title)}</figcaption>{svg_of(chart)}</figure>"
                       for chart in group.charts) + "</div></section>" for group in groups]
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<style>{theme()}{_STYLE}</style><h1>{escape(title)}</h1><dl class="facts">{head}</dl>'
            f"{''.join(parts)}</html>\n")


def svg_of(chart: Chart) -> str:
    """One chart."""
    body = _parallel(chart) if chart.kind == "parallel" else _plot(chart)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(chart.title)}">{body}</svg>'


class Scale:
    """Maps numbers to pixels, linearly or by logarithms."""

    def __init__(self, values: Sequence[float], begin: float, end: float, logarithmic: bool) -> None:
        self._log = logarithmic and min(values) > 0
        self.low, self.high = (self._of(min(values)), self._of(max(values)))
        if self.high - self.low < 1e-12:
            self.low, self.high = self.low - 0.5, self.high + 0.5
        self._begin, self._end = begin, end

    def _of(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def __call__(self, value: float) -> float:
        return self._begin + (self._of(value) - self.low) / (self.high - self.low) * (self._end - self._begin)

    def ticks(self) -> list[float]:
        """Five values from end to end."""
        places = [self.low + (self.high - self.low) * i / 4 for i in range(5)]
        return [10**place if self._log else place for place in places]


def _plot(chart: Chart) -> str:
    points = [point for _, series in chart.series for point in series]
    ys = [y for _, y in points] + ([0.0] if chart.kind == "bars" else [])
    inset = 14 if chart.kind == "bars" else 0
    x = Scale([x for x, _ in points], _LEFT + inset, _WIDTH - _RIGHT - inset, "x" in chart.logarithmic)
    y = Scale(ys, _HEIGHT - _BOTTOM, _TOP, "y" in chart.logarithmic)
    parts = [_axes(chart, x, y)]
    for name, series in chart.series:
        if chart.kind == "bars":
            width = (_WIDTH - _LEFT - _RIGHT - 2 * inset) / max(1, len(series)) * 0.9
            parts += [f'<rect x="{x(a) - width / 2:.1f}" y="{y(b):.1f}" width="{width:.1f}" '
                      f'height="{y(0.0) - y(b):.1f}" class="trial"/>' for a, b in series]
        elif name in ("best", "limit"):
            path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in series)
            parts.append(f'<polyline points="{path}" class="best"/>')
        else:
            parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.5" class="trial" fill-opacity=".55"/>'
                      for a, b in series]
    return "".join(parts)


def _number(value: float) -> str:
    return f"{value:,.0f}" if 100 <= value < 1e7 else f"{value:.3g}"


def _axes(chart: Chart, x: Scale, y: Scale) -> str:
    bottom = _HEIGHT - _BOTTOM
    parts = [f'<line class="axis" x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - _RIGHT}" y2="{bottom}"/>']
    for tick in x.ticks():
        parts.append(f'<text x="{x(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{_number(tick)}</text>')
    for tick in y.ticks():
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y(tick):.1f}" x2="{_WIDTH - _RIGHT}" y2="{y(tick):.1f}"/>'
                     f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{_number(tick)}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(chart.x)}</text>')
    parts.append(f'<text x="4" y="{_TOP}">{escape(chart.y)}</text>')
    return "".join(parts)


def _parallel(chart: Chart) -> str:
    count = max(1, len(chart.axes) - 1)
    left, right, bottom = 40, _WIDTH - 40, _HEIGHT - _BOTTOM

    def at(axis: float, place: float) -> tuple[float, float]:
        return left + (right - left) * axis / count, bottom - (bottom - 24) * place

    parts: list[str] = []
    for share, series in chart.series:
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(*point) for point in series))
        strength = float(share)
        kind = "best" if strength > 0.95 else "path"
        parts.append(f'<polyline points="{path}" class="{kind}" stroke-opacity="{strength**3:.3f}"/>')
    for number, (name, values) in enumerate(chart.axes):
        (a, low), (_, high) = at(number, 0.0), at(number, 1.0)
        parts.append(f'<line class="axis" x1="{a:.1f}" y1="{low}" x2="{a:.1f}" y2="{high}"/>'
                     f'<text x="{a:.1f}" y="{low + 14}" text-anchor="middle">{escape(values[0])}</text>'
                     f'<text x="{a:.1f}" y="{high - 4}" text-anchor="middle">{escape(values[-1])}</text>'
                     f'<text x="{a:.1f}" y="{low + 28 + 11 * (number % 2)}" text-anchor="middle">'
                     f'{escape(name.rpartition(".")[2])}</text>')
    return "".join(parts)
