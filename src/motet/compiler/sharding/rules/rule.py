"""What a rule says of an operation: the factors that its tensors' dimensions belong to.

    linalg.matmul ins(%a: 8x16, %b: 16x32) outs(%c: 8x32)   →   factors m = 8, n = 32, k = 16
                                                                %a: (m, k)   %b: (k, n)   %c: (m, n), result: (m, n)
                                                                reduced: {k: "add"}

All dimensions of one factor are divided together, over the same axes. A dimension without a factor is needed as a
whole. Devices that divide a reduced factor have parts of the result, which are reduced among them.

Source: the factors follow Shardy's sharding rules, https://github.com/openxla/shardy, docs/sharding_representation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from motet.compiler.ir._mlir import ir

Factors = tuple[int | None, ...]  # of the dimensions of one tensor
Resize = Callable[[ir.Operation, Sequence[int]], None]  # adapts the attributes of a copy to the shape of its result


def keep_attributes(operation: ir.Operation, shape: Sequence[int]) -> None:
    """For operations whose attributes say nothing of shapes."""


@dataclass(frozen=True)
class ShardingRule:
    """`operands` has an entry for each operand of the operation, empty for those that are no tensors; `extents` are
    those of the factors. `captured` are tensors that the operation's contents read. Reductions begin with the operands
    from number `initial` on."""

    operands: tuple[Factors, ...]
    results: tuple[Factors, ...]
    extents: tuple[int, ...]
    reduced: Mapping[int, str] = field(default_factory=dict[int, str])
    captured: Mapping[ir.Value, Factors] = field(default_factory=dict[ir.Value, Factors])
    initial: int | None = None
    resize: Resize = keep_attributes


def shape_of(value: ir.Value) -> list[int] | None:
    """The extents of a static tensor; None for other values."""
    if not isinstance(value.type, ir.RankedTensorType):
        return None
    kind = ir.RankedTensorType(value.type)
    return list(kind.shape) if kind.has_static_shape else None


def all_static(operation: ir.Operation) -> bool:
    """Whether all tensors of an operation have static shapes."""
    return all(
        not isinstance(value.type, ir.ShapedType) or shape_of(value) is not None
        for value in (*operation.operands, *operation.results)
    )
