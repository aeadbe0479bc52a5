"""The graph of a function: operations as nodes, in a lane for each device, values as edges with type and size."""

from __future__ import annotations

from motet.tools.report.facts import FunctionFacts, label
from motet.tools.report.layered import Layout, Point, Spacing, lay_out
from motet.tools.report.model import GraphNode, ReportedValue
from motet.tools.report.writing import amount, clipped, colour, number, safe
from motet.tools.show import show_bytes, show_seconds

_WIDTH = {"kernel": 216.0, "copy": 150.0, "transfer": 176.0, "input": 150.0, "result": 150.0}
_HEIGHT = 42.0
_MARGIN = 24.0
_HEAD = 44.0  # the height above the nodes, for the names of lanes
_CHARACTERS = 27  # the length of names that fit into a node


def graph_svg(facts: FunctionFacts) -> str:
    """The drawing; nodes and edges name their operation in `data-o`."""
    program = facts.program
    used = sorted({operation.device for operation in program.operations})
    lanes = [used.index(operation.device) for operation in program.operations]
    edges = program.edges()
    layout = lay_out(
        [_WIDTH[operation.kind] for operation in program.operations], lanes, [(a, b) for a, b, _ in edges],
        Spacing(node_height=_HEIGHT, between_layers=50.0, least_lane=240.0),
    )
    width, height = layout.width + 2 * _MARGIN, layout.height + _HEAD + 2 * _MARGIN
    parts = [
        f'<svg class="graph" viewBox="0 0 {number(width)} {number(height)}" data-width="{number(width)}" '
        f'data-height="{number(height)}" role="img" aria-label="graph of {safe(program.signature.name)}">',
        '<g class="view">',
    ]
    for lane, (left, right) in enumerate(layout.lanes):
        x, size = left + _MARGIN - 14, right - left + 28
        parts.append(
            f'<rect class="lane" x="{number(x)}" y="8" width="{number(size)}" height="{number(height - 16)}" rx="8"/>'
            f'<text class="lane-name" x="{number(x + 12)}" y="30">{safe(program.devices[used[lane]].title)}</text>'
        )
    parts.append(f'<g transform="translate({number(_MARGIN)} {number(_HEAD + _MARGIN / 2)})">')
    for (source, target, value), route in zip(edges, layout.routes, strict=True):
        parts.append(_edge(facts, source, target, value, route))
    parts += [_value_labels(layout, edges)]
    parts += [_node(facts, n, operation, layout) for n, operation in enumerate(program.operations)]
    return "".join([*parts, "</g></g></svg>"])


def _edge(facts: FunctionFacts, source: int, target: int, value: ReportedValue, route: list[Point]) -> str:
    crosses = "transfer" in (facts.program.operations[source].kind, facts.program.operations[target].kind)
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
    kind = "edge moved" if crosses else "edge"
    title = f"{value.name} {value.type} ({show_bytes(value.bytes)})"
    return (f'<path class="{kind}" data-from="{facts.key}o{source}" data-to="{facts.key}o{target}" '
            f'stroke-width="{number(thick)}" d="{"".join(path)}"><title>{safe(title)}</title></path>')


def _value_labels(layout: Layout, edges: list[tuple[int, int, ReportedValue]]) -> str:
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


def _node(facts: FunctionFacts, at: int, operation: GraphNode, layout: Layout) -> str:
    width = _WIDTH[operation.kind]
    x, y = layout.centres[at] - width / 2, layout.tops[at]
    kind = operation.info.kind if operation.info is not None else operation.kind
    outer = f'<g class="node {safe(operation.kind)} {colour(kind)}" data-o="{facts.key}o{at}" tabindex="0" ' \
        f'transform="translate({number(x)} {number(y)})">'
    round_ = _HEIGHT / 2 if operation.kind in ("input", "result", "transfer") else 5
    box = f'<rect class="box" width="{number(width)}" height="{number(_HEIGHT)}" rx="{number(round_)}"/>'
    if operation.kind in ("input", "result"):
        value = (operation.writes or operation.reads)[0]
        lines = clipped(operation.name, 18), clipped(value.type or show_bytes(value.bytes), 22)
        return f'{outer}{box}{_text(width / 2, 18, "name middle", lines[0])}' \
            f'{_text(width / 2, 33, "sub middle", lines[1])}</g>'
    heat = ""
    longest = max((facts.seconds(n) for n in range(len(facts.program.operations))), default=0.0)
    if longest and operation.kind != "transfer":
        heat = f'<rect class="heat" x="0" y="{number(_HEIGHT - 4)}" height="4" ' \
            f'width="{number(width * facts.seconds(at) / longest)}"/>'
    left = 18 if operation.kind == "transfer" else 11
    return f'{outer}{box}{heat}{_text(left, 17, "name", clipped(label(facts, operation), _CHARACTERS))}' \
        f'{_text(left, 32, "sub", _summary(facts, at, operation))}</g>'


def _summary(facts: FunctionFacts, at: int, operation: GraphNode) -> str:
    words = [operation.info.kind] if operation.info is not None else []
    words.append(amount(operation.flops, "FLOP") if operation.flops else show_bytes(operation.bytes))
    if facts.seconds(at):
        words.append(("" if facts.trace is not None else "~") + show_seconds(facts.seconds(at)))
    return " · ".join(words)


def _text(x: float, y: float, kind: str, text: str) -> str:
    return f'<text class="{kind}" x="{number(x)}" y="{number(y)}">{safe(text)}</text>'
