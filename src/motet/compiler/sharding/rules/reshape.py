"""reshape: of dimensions that are joined or taken apart, the outermost ones are one factor.

    tensor.expand_shape %x [[0], [1, 2]] : 8x32 into 8x4x8   →   %x: (a, b), result: (a, b, ·), with b = 4

The part of a device of the outermost dimension is contiguous within the joined one.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.sharding.rules.rule import ShardingRule, all_static, shape_of


def read_reshape(operation: ir.Operation) -> ShardingRule | None:
    if operation.name not in ("tensor.expand_shape", "tensor.collapse_shape") or not all_static(operation):
        return None
    expands = operation.name == "tensor.expand_shape"
    joined, apart = operation.operands[0], operation.results[0]
    if not expands:
        joined, apart = apart, joined
    whole, parts = shape_of(joined) or [], shape_of(apart) or []
    groups = [[ir.IntegerAttr(n).value for n in ir.ArrayAttr(group)]
              for group in ir.ArrayAttr(operation.attributes["reassociation"])]
    extents: list[int] = []
    outer: list[int | None] = [None] * len(parts)
    inner: list[int | None] = [None] * len(whole)
    for place, group in enumerate(groups):
        first = next((number for number in group if parts[number] != 1), None)
        if first is not None:
            outer[first] = inner[place] = len(extents)
            extents.append(parts[first])
    sides = (tuple(inner), tuple(outer)) if expands else (tuple(outer), tuple(inner))
    rest = tuple(() for _ in list(operation.operands)[1:])
    return ShardingRule((sides[0], *rest), (sides[1],), tuple(extents), resize=_resize)


def _resize(operation: ir.Operation, shape: Sequence[int]) -> None:
    if operation.name == "tensor.expand_shape":
        operation.attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(shape))
