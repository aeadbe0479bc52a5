"""Writes ReduceProd over axes, of which the wheel knows all together alone since operator set 18, by halves.

    ReduceProd[axes=[0]](x : [5])    →    y = x[0:2] · x[2:4]; z = y[0:1] · y[1:2]; z · x[4:5]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import Facts, Rule, Writer

if TYPE_CHECKING:
    import onnx


def _reduce_prod(node: onnx.NodeProto, facts: Facts) -> list[onnx.NodeProto] | None:
    given = node.input[1] if len(node.input) > 1 else ""
    axes, extents = facts.model.constants.get(given), facts.extents(node.input[0])
    if facts.version < 18 or axes is None or not axes.size or extents is None:
        return None
    places = sorted({int(axis) % len(extents) for axis in axes.reshape(-1)})
    sizes = [extents[axis] for axis in places]
    if any(not size for size in sizes):
        return None  # without elements, or of extents that only a call knows
    w, value = Writer(node, facts), node.input[0]
    for axis, size in zip(places, sizes, strict=True):
        value = _along(w, value, axis, size or 1)
    return w.done([value if attribute(node, "keepdims", 1) else w.over("Squeeze", value, places)])


def _along(w: Writer, value: str, axis: int, size: int) -> str:
    """The product along an axis, whose extent becomes 1."""
    rest: list[str] = []
    while size > 1:
        half = size // 2
        if size % 2:
            rest.append(w.slice(value, axis, size - 1, size))
        value = w.add("Mul", w.slice(value, axis, 0, half), w.slice(value, axis, half, 2 * half))
        size = half
    for each in rest:
        value = w.add("Mul", value, each)
    return value


RULES: dict[str, Rule] = {"ReduceProd": _reduce_prod}
