"""settle-extents: in the `torch` dialect, asserts that indices of gathers and scatters are not longer than the data.

    %1 = torch.aten.gather %0, 0, %i  // [?,?]    →    cf.assert (dim %i, 1 <= dim %0, 1), "axis 1 of its index …"

This applies to every axis except the indexed one. The lowering assumes it without a check.
"""

from __future__ import annotations

from motet.compiler.frontends.onnx.tensors import kind_of, know_operations
from motet.compiler.frontends.torch.operands import known_integer
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.program import OF_EXTENTS
from motet.compiler.ir.sizes import constant_index, extent_of

_INDEXED = (
    "torch.aten.gather", "torch.aten.scatter.src", "torch.aten.scatter.value", "torch.aten.scatter_add",
    "torch.aten.scatter_reduce.two",
)  # fmt: skip
_AT_MOST = 3  # a predicate of arith.cmpi


def settle_extents(module: ir.Module) -> None:
    """Rewrites the module in place."""
    found = find_operations(module, *_INDEXED)
    if found:
        know_operations(module)
    for op in found:
        along = known_integer(op.operands[1])
        if along is None:
            continue
        with op.context, op.location, ir.InsertionPoint(op):
            _assert_inside(op.operands[2], op.operands[0], along, "its input")
            if op.name in ("torch.aten.scatter.src", "torch.aten.scatter_add", "torch.aten.scatter_reduce.two"):
                _assert_inside(op.operands[2], op.operands[3], None, "its source")


def _assert_inside(index: ir.Value, data: ir.Value, along: int | None, what: str) -> None:
    """Asserts that `index` is not longer than `data` along any axis except `along`."""
    kinds = kind_of(index), kind_of(data)
    if kinds[0] is None or kinds[1] is None or len(kinds[0].extents) != len(kinds[1].extents):
        return
    rank = len(kinds[0].extents)
    for axis in range(rank):
        is_dynamic = DYNAMIC in (kinds[0].extents[axis], kinds[1].extents[axis])
        if not is_dynamic or (along is not None and axis == along % rank):
            continue
        said = f"axis {axis} of its index must be at most that of {what}"
        assert_at_most(size_along(index, axis), size_along(data, axis), said)


def assert_at_most(least: ir.Value, most: ir.Value, said: str) -> None:
    """Asserts, at the current insertion point, that one extent is at most another; `said` is the error."""
    predicate = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _AT_MOST)
    condition = create("arith.cmpi", ir.IntegerType.get_signless(1), [least, most], {"predicate": predicate})
    attributes = {"msg": ir.StringAttr.get(said), OF_EXTENTS: ir.UnitAttr.get()}
    ir.Operation.create("cf.assert", operands=[condition], attributes=attributes)


def size_along(value: ir.Value, axis: int) -> ir.Value:
    """The extent of a tensor of the dialect `torch`, as an index."""
    kind = kind_of(value)
    if kind is None:
        raise TypeError("no tensor")
    if kind.extents[axis] != DYNAMIC:
        return constant_index(kind.extents[axis])
    return extent_of(create("torch_c.to_builtin_tensor", kind.builtin, [value]), axis)
