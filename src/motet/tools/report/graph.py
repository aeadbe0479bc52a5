"""The graph of a function: operations as nodes, in a lane for each device, values as edges with type and size; of large
graphs also the graphs of its modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.tools.report.facts import Detail, FunctionFacts, label
from motet.tools.report.layered import Layout, Point, Spacing, lay_out
from motet.tools.report.model import GraphNode, ReportedValue
from motet.tools.report.modules import GraphLevel, GraphPart, first_level, levels
from motet.tools.report.writing import amount, clipped, colour, number, safe
from motet.tools.show import show_bytes, show_seconds

_WIDTH = {"kernel": 216.0, "copy": 150.0, "transfer": 176.0, "input": 150.0, "result": 150.0}
_HEIGHT = 42.0
_MARGIN = 24.0
_HEAD = 44.0  # the height above the nodes, for the names of lanes
_LISTED = 40  # kernels of a module in its details

Edge = tuple[int, int, ReportedValue]


def graph_html(facts: FunctionFacts) -> str:
    """The drawings of all levels, of which the page shows one, with the choice between them."""
    known = levels(facts.program.operations)
    first = first_level(known)
    drawings = "".join(
        f'<div class="level" data-level="{index}"{"" if index == first else " hidden"}>{_Drawing(facts, level).svg()}'
        "</div>" for index, level in enumerate(known)
    )
    if len(known) == 1:
        return drawings
    options = "".join(
        f'<option value="{index}"{" selected" if index == first else ""}>{_title(level)}</option>'
        for index, level in enumerate(known)
    )
    return f'<label class="choice">show <select class="levels">{options}</select></label>{drawings}'


def module_details(facts: FunctionFacts) -> dict[str, Detail]:
    """The details of the nodes that stand for modules."""
    found: dict[str, Detail] = {}
    for level in levels(facts.program.operations):
        for index, part in enumerate(level.parts):
            if part.module:
                found[_key(facts, level, index)] = part.module, _module_lines(facts, part)
    return found


def _title(level: GraphLevel) -> str:
    if not level.depth:
        return f"all operations ({len(level.parts)})"
    return f"modules to depth {level.depth} ({len(level.parts)})"


def _key(facts: FunctionFacts, level: GraphLevel, index: int) -> str:
    part = level.parts[index]
    return f"{facts.key}g{level.depth}-{index}" if part.module else f"{facts.key}o{part.operations[0]}"


def _module_lines(facts: FunctionFacts, part: GraphPart) -> list[tuple[str, str]]:
    operations = [facts.program.operations[at] for at in part.operations]
    seconds = sum(facts.seconds(at) for at in part.operations)
    limit = sum(facts.limit(at) for at in part.operations)
    lines = [("kernels", str(len(operations)))]
    lines += [("measured" if facts.trace is not None else "estimate", show_seconds(seconds))] if seconds else []
    lines += [("limit", show_seconds(limit))] if limit else []
    if flops := sum(operation.flops for operation in operations):
        lines.append(("work", amount(flops, "FLOP")))
    lines.append(("moves", show_bytes(sum(operation.bytes for operation in operations))))
    for at, operation in zip(part.operations[:_LISTED], operations, strict=False):
        own = facts.seconds(at)
        lines.append((show_seconds(own) if own else "kernel", label(facts, operation)))
    if len(operations) > _LISTED:
        lines.append(("", f"and {len(operations) - _LISTED} more"))
    return lines


@dataclass
class _Drawing:
    """One level; nodes and edges name their details in `data-o`."""

    facts: FunctionFacts
    level: GraphLevel

    def svg(self) -> str:
        program, parts = self.facts.program, self.level.parts
        used = sorted({operation.device for operation in program.operations})
        firsts = [program.operations[part.operations[0]] for part in parts]
        edges = self._edges()
        layout = lay_out(
            [_WIDTH[first.kind] for first in firsts], [used.index(first.device) for first in firsts],
            [(a, b) for a, b, _ in edges], Spacing(node_height=_HEIGHT, between_layers=50.0, least_lane=240.0),
        )
        width, height = layout.width + 2 * _MARGIN, layout.height + _HEAD + 2 * _MARGIN
        pieces = [
            f'<svg class="graph" viewBox="0 0 {number(width)} {number(height)}" data-width="{number(width)}" '
            f'data-height="{number(height)}" role="img" aria-label="graph of {safe(program.signature.name)}">',
            '<g class="view">',
        ]
        for lane, (left, right) in enumerate(layout.lanes):
            x, size = left + _MARGIN - 14, right - left + 28
            pieces.append(
                f'<rect class="lane" x="{number(x)}" y="8" width="{number(size)}" height="{number(height - 16)}" '
                'rx="8"/>'
                + _text(x + 12, 30, "lane-name", program.devices[used[lane]].title, size - 24)
            )
        pieces.append(f'<g transform="translate({number(_MARGIN)} {number(_HEAD + _MARGIN / 2)})">')
        pieces += [self._edge(edge, route) for edge, route in zip(edges, layout.routes, strict=True)]
        pieces.append(_value_labels(layout, edges))
        pieces += [self._node(index, layout) for index in range(len(parts))]
        return "".join([*pieces, "</g></g></svg>"])

    def _edges(self) -> list[Edge]:
        """The edges between parts, each value once."""
        owner = {at: index for index, part in enumerate(self.level.parts) for at in part.operations}
        found = [(owner[a], owner[b], value) for a, b, value in self.facts.program.edges() if owner[a] != owner[b]]
        return list(dict.fromkeys(found))

    def _edge(self, edge: Edge, route: list[Point]) -> str:
        source, target, value = edge
        operations = self.facts.program.operations
        ends = [operations[self.level.parts[index].operations[0]].kind for index in (source, target)]
        (x, y), *rest = route
        path = [f"M{number(x)} {number(y)}"]
        for to_x, to_y in rest:
            middle = (y + to_y) / 2
            path.append(
                f"V{number(to_y)}" if to_x == x
                else f"C{number(x)} {number(middle)} {number(to_x)} {number(middle)} {number(to_x)} {number(to_y)}"
            )
            x, y = to_x, to_y
        thick = 1.2 + min(4.0, max(0.0, len(str(value.bytes)) - 3) * 0.6)  # by the number of digits of its bytes
        kind = "edge moved" if "transfer" in ends else "edge"
        title = f"{value.name} {value.type} ({show_bytes(value.bytes)})"
        keys = [_key(self.facts, self.level, index) for index in (source, target)]
        return (f'<path class="{kind}" data-from="{keys[0]}" data-to="{keys[1]}" '
                f'stroke-width="{number(thick)}" d="{"".join(path)}"><title>{safe(title)}</title></path>')

    def _node(self, index: int, layout: Layout) -> str:
        facts, part = self.facts, self.level.parts[index]
        operation = facts.program.operations[part.operations[0]]
        width = _WIDTH[operation.kind]
        x, y = layout.centres[index] - width / 2, layout.tops[index]
        kind = "module" if part.module else operation.kind
        shade = colour(operation.info.kind if operation.info is not None else operation.kind)
        round_ = _HEIGHT / 2 if operation.kind in ("input", "result", "transfer") else 5
        outer = (
            f'<g class="node {safe(kind)} {shade}" data-o="{_key(facts, self.level, index)}" tabindex="0" '
            f'role="button" transform="translate({number(x)} {number(y)})">'
            f'<rect class="box" width="{number(width)}" height="{number(_HEIGHT)}" rx="{number(round_)}"/>'
        )
        if operation.kind in ("input", "result"):
            value = (operation.writes or operation.reads)[0]
            return (f'{outer}{_text(width / 2, 18, "name middle", operation.name, width - 24)}'
                    f'{_text(width / 2, 33, "sub middle", value.type or show_bytes(value.bytes), width - 24)}</g>')
        left = 18 if operation.kind == "transfer" else 11
        name = part.module or label(facts, operation)
        return (f'{outer}{self._heat(part, width, operation)}{_text(left, 17, "name", name, width - 2 * left)}'
                f'{_text(left, 32, "sub", _summary(facts, part, operation), width - 2 * left)}</g>')

    def _heat(self, part: GraphPart, width: float, operation: GraphNode) -> str:
        """A bar as long as the part's share of the time of the longest part."""
        times = [sum(self.facts.seconds(at) for at in each.operations) for each in self.level.parts]
        longest = max(times, default=0.0)
        if not longest or operation.kind == "transfer":
            return ""
        own = sum(self.facts.seconds(at) for at in part.operations)
        return (f'<rect class="heat" x="0" y="{number(_HEIGHT - 4)}" height="4" '
                f'width="{number(width * own / longest)}"/>')


def _value_labels(layout: Layout, edges: Sequence[Edge]) -> str:
    """Type and size of each value once, under the node that makes it."""
    texts: list[str] = []
    for source in dict.fromkeys(source for source, _, _ in edges):
        values = list(dict.fromkeys(value for maker, _, value in edges if maker == source))
        x, y = layout.centres[source], layout.tops[source] + _HEIGHT
        first = values[0]
        more = f" and {len(values) - 1} more" if len(values) > 1 else ""
        lines = [clipped(first.type, 22), show_bytes(first.bytes) + more]
        texts += [
            _text(x + 8, y + 13 + 12 * place, "value", line) for place, line in enumerate(filter(None, lines))
        ]
    return "".join(texts)


def _summary(facts: FunctionFacts, part: GraphPart, operation: GraphNode) -> str:
    operations = [facts.program.operations[at] for at in part.operations]
    flops, moved = sum(each.flops for each in operations), sum(each.bytes for each in operations)
    words = [operation.info.kind] if operation.info is not None else []
    if part.module:
        words = [f"{len(operations)} kernels"]
    words.append(amount(flops, "FLOP") if flops else show_bytes(moved))
    if seconds := sum(facts.seconds(at) for at in part.operations):
        words.append(("" if facts.trace is not None else "~") + show_seconds(seconds))
    return " · ".join(words)


def _text(x: float, y: float, kind: str, text: str, room: float = 0.0) -> str:
    """A text, shortened by the page's script to `room` pixels if given."""
    fit = f' data-fit="{number(room)}"' if room else ""
    return f'<text class="{kind}" x="{number(x)}" y="{number(y)}"{fit}>{safe(text)}</text>'
