"""Lowers Gather along an axis of extent 1, for which the torch-mlir wheel drops the index, so that errors go unnoticed.

    %2 = torch.operator "onnx.Gather"(%0, %1)        %a, %i = torch_c.to_builtin_tensor %0, %1
         : [1, 4], [n]                            →  %b = linalg.generic ins(%i) {extract %a[i < 0 ? i + 1 : i, …]}
                                                     %2 = torch_c.from_builtin_tensor %b : [n, 4]

The kernel checks the index of `tensor.extract`, as it does for longer axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from motet.compiler.frontends.onnx.tensors import TorchKind, kind_of
from motet.compiler.frontends.onnx.torch_operands import (
    ExtentOperand,
    NodeOperands,
    OperandAxis,
    builtin,
    compare,
    i64,
    numbers,
)
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.nests import loops

_LESS = 2  # a predicate of arith.cmpi


def _gather(node: NodeOperands) -> None:
    data, indices, result = node.operand(0), node.operand(1), kind_of(node.op.results[0])
    if data is None or indices is None or result is None or not data.rank:
        return
    axis = node.attribute("axis", 0) % data.rank
    known = numbers(node, 1)
    inside = known is not None and all(-1 <= place <= 0 for place in known)
    if data.kind.extents[axis] != 1 or inside or len(result.extents) != data.rank + indices.rank - 1:
        return
    read = _read(data, indices, axis, result)
    node.op.results[0].replace_all_uses_with(create("torch_c.from_builtin_tensor", node.op.results[0].type, [read]))
    node.op.erase()


def _read(data: ExtentOperand, indices: ExtentOperand, axis: int, result: TorchKind) -> ir.Value:
    """The elements of `data` at `indices`; axes: those before `axis`, those of the indices, those after `axis`."""
    before, behind = range(axis), range(axis + 1, data.rank)
    sources = [*(OperandAxis(data, k) for k in before), *(OperandAxis(indices, k) for k in range(indices.rank)),
               *(OperandAxis(data, k) for k in behind)]
    dynamic = [source.size for source, extent in zip(sources, result.builtin.shape, strict=True)
               if ir.ShapedType.is_dynamic_size(extent)]
    rank, source = len(sources), builtin(data)
    own = [*before, *(k + indices.rank - 1 for k in behind)]
    read = ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(axis + k) for k in range(indices.rank)])

    def element(block: ir.Block) -> ir.Value:
        place = _from_the_end(block.arguments[0])
        return create("tensor.extract", result.scalar, [source, *_inserted([_loop(k) for k in own], axis, place)])

    output = create("tensor.empty", result.builtin, dynamic)
    return loops([builtin(indices)], output, [read, ir.AffineMap.get_identity(rank)], element)


def _from_the_end(given: ir.Value) -> ir.Value:
    """The index into an axis of extent 1, with negative ones counted from the end."""
    one, zero = (create("arith.constant", given.type, [], {"value": ir.IntegerAttr.get(given.type, n)}) for n in (1, 0))
    shifted = create("arith.addi", given.type, [given, one])
    place = create("arith.select", given.type, [compare(_LESS, given, zero), shifted, given])
    return create("arith.index_cast", ir.IndexType.get(), [place])


def _loop(number: int) -> ir.Value:
    return create("linalg.index", ir.IndexType.get(), [], {"dim": i64(number)})


def _inserted(places: Sequence[ir.Value], axis: int, place: ir.Value) -> list[ir.Value]:
    return [*places[:axis], place, *places[axis:]]


RULES: dict[str, Callable[[NodeOperands], None]] = {"Gather": _gather}
