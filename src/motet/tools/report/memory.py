"""The memory plan of a region as a drawing: arena bytes upwards, operations to the right, a box for each buffer.

    offset ↑  ┌──────┐┌───────────┐
              │ b 3  ││ b 7       │     the plan's size, the least that any plan needs (the most bytes alive at
              └──────┘└───────────┘     once), and what the buffers would take side by side
    commands →
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.tools.report.facts import Detail, FunctionFacts
from motet.tools.report.model import ArenaSlot, Region
from motet.tools.report.writing import colour, number, percent, safe
from motet.tools.show import show_bytes

_HEIGHT, _LOW = 260, 130  # of a single plan, and of each of several
_FOOT = 22
_ALIGNMENT = 64  # of buffers in an arena


def memory_html(facts: FunctionFacts) -> str:
    """The plans of all regions that have an arena; a sentence if there are none."""
    shown = [(number_, region) for number_, region in enumerate(facts.program.regions) if region.lives]
    high = _HEIGHT if len(shown) == 1 else _LOW
    parts = [_region(facts, number_, region, high) for number_, region in shown]
    if parts:
        parts.append('<p class="quiet">Upwards: bytes of the arena. To the right: operations, in order. '
                     "Dashed: the most bytes alive at once.</p>")
    return "".join(parts) or '<p class="quiet">No region needs memory for intermediate values.</p>'


def lower_bound(lives: Sequence[ArenaSlot]) -> int:
    """The largest number of bytes alive at once, aligned as in an arena: a lower bound of all plans."""
    changes: dict[int, int] = {}
    for life in lives:
        size = -(-life.bytes // _ALIGNMENT) * _ALIGNMENT
        changes[life.first] = changes.get(life.first, 0) + size
        changes[life.last + 1] = changes.get(life.last + 1, 0) - size
    alive = most = 0
    for moment in sorted(changes):
        alive += changes[moment]
        most = max(most, alive)
    return most


def memory_details(facts: FunctionFacts) -> dict[str, Detail]:
    """The details of each box."""
    found: dict[str, Detail] = {}
    for number_, region in enumerate(facts.program.regions):
        for index, life in enumerate(region.lives):
            first, last = (facts.program.operations[region.operations[n]].name for n in (life.first, life.last))
            found[f"{facts.key}m{number_}-{index}"] = life.name, [
                *([("type", life.type)] if life.type else []),
                ("size", f"{show_bytes(life.bytes)} ({life.bytes:,} B)"),
                ("offset", f"{life.offset:,} to {life.offset + life.bytes:,}"), ("written by", first),
                ("last read by", last), ("operations", f"{life.first} to {life.last}"),
            ]
    return found


def _region(facts: FunctionFacts, at: int, region: Region, high: int) -> str:
    count = len(region.operations)
    least = lower_bound(region.lives)
    whole = sum(life.bytes for life in region.lives)
    top = max(region.arena, max(life.offset + life.bytes for life in region.lives), 1)
    parts = [
        f'<svg class="arena" width="100%" height="{high + _FOOT}" role="img" '
        f'aria-label="memory plan of {safe(region.name)}"><rect class="track" width="100%" height="{high}"/>'
    ]
    for index, life in enumerate(region.lives):
        parts.append(_box(facts, region, f"{facts.key}m{at}-{index}", life, count, top, high))
    level = high * (1 - least / top)
    line = number(max(1.0, level))
    parts.append(f'<line class="bound" x1="0" x2="100%" y1="{line}" y2="{line}"/>')
    for index in range(count):
        if count <= 40 or index % (count // 20) == 0:
            parts.append(f'<text class="axis" x="{percent(index + 0.5, count)}" y="{high + 15}">{index}</text>')
    excess = f"{region.arena / least:.3g} × that" if least and region.arena > least else "no plan is smaller"
    said = (
        f"<b>{safe(region.name)}</b>: arena {safe(show_bytes(region.arena))}; most alive at once "
        f"{safe(show_bytes(least))} ({safe(excess)}); buffers side by side {safe(show_bytes(whole))}"
        + (f", {whole / region.arena:.3g} × the arena" if region.arena else "")
    )
    return f'<figure><figcaption>{said}</figcaption>{"".join(parts)}</svg></figure>'


def _box(facts: FunctionFacts, region: Region, key: str, life: ArenaSlot, count: int, top: int, high: int) -> str:
    writer = facts.program.operations[region.operations[life.first]]
    kind = writer.info.kind if writer.info is not None else writer.kind
    height = max(1.5, high * life.bytes / top)
    y = high * (1 - (life.offset + life.bytes) / top)
    text = ""
    if height >= 13:
        text = f'<text x="5" y="14">{safe(life.type or life.name)}</text>'
        if height >= 28:
            text += f'<text class="quiet" x="5" y="27">{safe(show_bytes(life.bytes))}</text>'
    return (f'<svg class="buffer {colour(kind)}" data-o="{key}" x="{percent(life.first, count)}" y="{number(y)}" '
            f'width="{percent(life.last + 1 - life.first, count)}" height="{number(height)}">'
            f'<rect width="100%" height="100%"/>{text}</svg>')
