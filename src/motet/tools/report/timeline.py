"""The timeline: predicted and, with a trace, measured operations on one scale; a row for each queue of each device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from motet.runtime.trace import BESIDE, busy
from motet.tools.report.facts import Detail, FunctionFacts, label
from motet.tools.report.writing import colour, number, percent, safe, share
from motet.tools.show import show_bytes, show_seconds

_ROW = 30
_GAP = 6
_HEADING = 26
_AXIS = 24
_TICKS = 10
IDLE = "idle"
_LEAST_IDLE = 0.005  # of the call: the shortest idle time that is shown
_LEAST_LABEL = 0.0003  # of the scale: the shortest bar that has a label, visible when zoomed in


@dataclass(frozen=True)
class _Box:
    """A bar of the drawing."""

    device: str
    queue: int
    name: str
    kind: str
    begin: float
    end: float
    key: str  # of its details
    lane: int = 0
    lanes: int = 1
    after: tuple[int, ...] = ()
    critical: bool = False


def timeline_html(facts: FunctionFacts) -> str:
    """Row names at the left, the drawing, which can be zoomed, at the right."""
    groups = [("predicted", facts.prediction.seconds, _predicted(facts))]
    memory: dict[str, list[tuple[float, int]]] = {}
    scale = facts.prediction.seconds
    if facts.trace is not None and facts.elapsed is not None:
        groups.append(("measured", facts.elapsed, _with_idle(_measured(facts), facts.elapsed, facts.key)))
        memory, scale = facts.trace.memory, max(scale, facts.elapsed)
    earlier = facts.earlier
    if earlier is not None and earlier.elapsed is not None:
        groups.append(("before", earlier.elapsed, _with_idle(_measured(earlier), earlier.elapsed, earlier.key)))
        scale = max(scale, earlier.elapsed)
    names: list[str] = []
    body: list[str] = []
    said: list[str] = []
    drawn = [box for _, _, boxes in groups for box in boxes]
    if any(box.critical for box in drawn):
        said.append("Outlined: the critical path of the prediction.")
    if any(box.after for box in drawn):
        said.append("Arrows: waits between queues.")
    if any(box.kind == IDLE for box in drawn):
        said.append("Hatched: idle, no command of the queue runs.")
    if any(box.lanes > 1 for box in drawn):
        said.append("One upon another: commands that run at once.")
    y = _AXIS
    for title, whole, boxes in groups:
        names.append(f'<div class="group" style="height:{_HEADING}px">{title} · {safe(show_seconds(whole))}</div>')
        y += _HEADING
        tops: dict[tuple[str, int], int] = {}
        for device, queue in sorted({(box.device, box.queue) for box in boxes}):
            tops[device, queue] = y
            own = [(box.begin, box.end) for box in boxes
                   if (box.device, box.queue) == (device, queue) and box.kind != IDLE]
            names.append(f'<div class="row" style="height:{_ROW + _GAP}px">{safe(device)} '
                         f"<i>queue {queue}, {safe(share(busy(own), whole))} busy</i></div>")
            body.append(f'<rect class="track" x="0" y="{y}" width="100%" height="{_ROW}"/>')
            y += _ROW + _GAP
        body += [_bar(box, tops[box.device, box.queue], scale) for box in boxes]
        body += _arrows(boxes, tops, scale)
    for device, samples in sorted(memory.items()):
        least, most = min(size for _, size in samples), max(size for _, size in samples)
        span = show_bytes(most) if least == most else f"{show_bytes(least)} to {show_bytes(most)}"
        names.append(f'<div class="row" style="height:{_ROW + _GAP}px">{safe(device)} '
                     f"<i>memory, {safe(span)}</i></div>")
        body.append(_memory(samples, least, most, y, scale, facts.elapsed or scale))
        y += _ROW + _GAP
    drawing = (f'<svg class="time" data-seconds="{scale!r}" width="100%" height="{y}" role="img" '
               f'aria-label="timeline of {safe(facts.program.signature.name)}">'
               f'<g class="ticks">{"".join(_ticks(scale, y))}</g>{"".join(body)}</svg>')
    return (f'<div class="timeline"><div class="names"><div style="height:{_AXIS}px"></div>{"".join(names)}</div>'
            f'<div class="scroll">{drawing}</div></div><p class="quiet">{" ".join(said)}</p>')


def _with_idle(boxes: Sequence[_Box], elapsed: float, prefix: str) -> list[_Box]:
    """The boxes, followed by those of the idle times of each queue."""
    found: list[_Box] = []
    for number_, (device, queue, begin, end) in enumerate(_gaps(boxes, elapsed)):
        found.append(_Box(device, queue, f"idle {show_seconds(end - begin)}", IDLE, begin, end, f"{prefix}i{number_}"))
    return [*boxes, *found]


def _gaps(boxes: Sequence[_Box], elapsed: float) -> Iterable[tuple[str, int, float, float]]:
    """The times in which a queue runs nothing, if they are worth a name: device, queue, begin and end."""
    for device, queue in sorted({(box.device, box.queue) for box in boxes}):
        reached = 0.0
        own = sorted((box.begin, box.end) for box in boxes if (box.device, box.queue) == (device, queue))
        for begin, end in [*own, (elapsed, elapsed)]:
            if begin - reached > _LEAST_IDLE * elapsed:
                yield device, queue, reached, begin
            reached = max(reached, end)


def idle_details(facts: FunctionFacts) -> dict[str, Detail]:
    """The details of idle times: what ran before, what runs next, and what it waited for."""
    found: dict[str, Detail] = {}
    if facts.trace is None or facts.elapsed is None:
        return found
    boxes = _measured(facts)
    for number_, (device, queue, begin, end) in enumerate(_gaps(boxes, facts.elapsed)):
        own = [box for box in boxes if (box.device, box.queue) == (device, queue)]
        before = max((box for box in own if box.end <= begin + 1e-12), key=lambda box: box.end, default=None)
        after = min((box for box in own if box.begin >= end - 1e-12), key=lambda box: box.begin, default=None)
        lines = [("device", f"{device}, queue {queue}"), ("begins", show_seconds(begin)),
                 ("takes", f"{show_seconds(end - begin)}, {share(end - begin, facts.elapsed)} of the call")]
        lines += [("after", before.name)] if before is not None else [("why", "the call begins: dispatch")]
        if after is None:
            lines.append(("why", "nothing is left to do on this queue"))
        else:
            lines.append(("before", after.name))
            waited = [boxes[source].name for source in after.after]
            if waited:
                lines.append(("waits for", ", ".join(waited)))
            elif before is not None:
                lines.append(("why", "dispatch of the next command, or threads that are not yet there"))
        found[f"{facts.key}i{number_}"] = f"idle {show_seconds(end - begin)}", lines
    return found if facts.earlier is None else found | idle_details(facts.earlier)


def idle_share(facts: FunctionFacts) -> float:
    """The part of the measured time in which no queue of any device runs a command."""
    if facts.trace is None or not facts.elapsed:
        return 0.0
    return 1 - busy([(span.begin, span.end) for span in facts.trace.spans]) / facts.elapsed


def _predicted(facts: FunctionFacts) -> list[_Box]:
    operations = facts.program.operations
    # If everything is critical, marking it gives no information.
    some = len(facts.prediction.critical) < len(facts.prediction.bars)
    return [
        _Box(
            bar.device, bar.queue, label(facts, operations[bar.operation]) if bar.operation >= 0 else bar.name,
            _kind(facts, bar.operation, bar.kind), bar.begin, bar.end,
            f"{facts.key}o{bar.operation}" if bar.operation >= 0 else f"{facts.key}p{number_}", bar.lane, bar.lanes,
            bar.after, some and number_ in facts.prediction.critical,
        )
        for number_, bar in enumerate(facts.prediction.bars)
    ]


def _measured(facts: FunctionFacts) -> list[_Box]:
    assert facts.trace is not None
    boxes: list[_Box] = []
    lanes: dict[tuple[str, int], int] = {}
    for span in facts.trace.spans:
        place = span.device, span.queue % BESIDE
        lanes[place] = max(lanes.get(place, 1), span.queue // BESIDE + 1)
    for index, span in enumerate(facts.trace.spans):
        operation = facts.spans.get(index, -1)
        name = label(facts, facts.program.operations[operation]) if operation >= 0 else span.name
        boxes.append(_Box(
            span.device, span.queue % BESIDE, name, _kind(facts, operation, span.kind), span.begin, span.end,
            f"{facts.key}o{operation}" if operation >= 0 else f"{facts.key}s{index}", span.queue // BESIDE,
            lanes[span.device, span.queue % BESIDE], span.after,
        ))
    return boxes


def _kind(facts: FunctionFacts, operation: int, kind: str) -> str:
    info = facts.program.operations[operation].info if operation >= 0 else None
    return info.kind if info is not None else kind


def moves(facts: FunctionFacts) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """The details of bars without an operation: transfers that the program does not name."""
    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for index, bar in enumerate(facts.prediction.bars):
        if bar.operation < 0:
            found[f"{facts.key}p{index}"] = bar.name, _move(bar.device, bar.queue, bar.begin, bar.end, bar.bytes)
    for index, span in enumerate(facts.trace.spans if facts.trace is not None else []):
        if index not in facts.spans:
            found[f"{facts.key}s{index}"] = span.name, _move(
                span.device, span.queue, span.begin, span.end, span.bytes)
    return found if facts.earlier is None else found | moves(facts.earlier)


def _move(device: str, queue: int, begin: float, end: float, size: int) -> list[tuple[str, str]]:
    lines = [("device", f"{device}, queue {queue}"), ("begins", show_seconds(begin)),
             ("takes", show_seconds(end - begin))]
    if size:
        lines.append(("moves", show_bytes(size)))
        if end > begin:
            lines.append(("bandwidth", f"{size / (end - begin) / 1e9:,.3g} GB/s"))
    return lines


def _bar(box: _Box, top: int, scale: float) -> str:
    height = _ROW / box.lanes
    y = top + box.lane * height
    length = box.end - box.begin
    kind = f"bar {colour(box.kind)}" + (" critical" if box.critical else "")
    name = ""
    if length > _LEAST_LABEL * scale:  # a nested drawing, which clips the label to the bar
        baseline = min(19.0, height / 2 + 4)
        small = ' class="small"' if height < 14 else ""
        text = f'<text x="4" y="{number(baseline)}"{small}>{safe(box.name)}</text>'
        name = f'<svg width="100%" height="100%">{text}</svg>'
    return (f'<svg class="{kind}" data-o="{box.key}" data-t="{box.begin:.9g} {length:.9g}" '
            f'x="{percent(box.begin, scale)}" y="{number(y)}" '
            f'width="{percent(length, scale)}" height="{number(height)}">'
            f'<rect width="100%" height="100%"/>{name}</svg>')


def _arrows(boxes: Sequence[_Box], tops: dict[tuple[str, int], int], scale: float) -> Iterable[str]:
    for box in boxes:
        for earlier in box.after:
            source = boxes[earlier]
            yield (
                f'<line class="flow" x1="{percent(source.end, scale)}" '
                f'y1="{tops[source.device, source.queue] + _ROW / 2:g}" x2="{percent(box.begin, scale)}" '
                f'y2="{tops[box.device, box.queue] + _ROW / 2:g}" marker-end="url(#arrow)"/>'
            )


def _memory(
    samples: Sequence[tuple[float, int]], least: int, most: int, top: int, scale: float, end: float
) -> str:
    """Steps from each sample to the next; the smallest one keeps a visible height."""
    boxes = [f'<rect class="track" x="0" y="{top}" width="100%" height="{_ROW}"/>']
    for (begin, size), (until, _) in zip(samples, [*samples[1:], (end, 0)], strict=True):
        height = _ROW * (0.25 + 0.75 * (size - least) / (most - least) if most > least else 1.0)
        boxes.append(
            f'<rect class="memory" x="{percent(begin, scale)}" y="{number(top + _ROW - height)}" '
            f'width="{percent(max(0.0, until - begin), scale)}" height="{number(height)}">'
            f"<title>{safe(show_bytes(size))} from {safe(show_seconds(begin))} on</title></rect>"
        )
    return "".join(boxes)


def _ticks(scale: float, height: int) -> Iterable[str]:
    step = _step(scale / _TICKS) if scale else 0.0
    for index in range(1, math.ceil(scale / step) if step else 0):
        place = percent(index * step, scale)
        yield f'<line x1="{place}" y1="18" x2="{place}" y2="{height}"/>'
        yield f'<text x="{place}" y="13">{safe(show_seconds(index * step))}</text>'


def _step(least: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)
