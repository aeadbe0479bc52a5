"""lower-resizing: in the `torch` dialect, lowers resizing, as `motet.pytorch.resizing` writes it, to weighted sums.

    torch.operator "torch.motet.resize"(%x, [56, 56], [none, none], "linear", …)
 →  %a = linalg.generic … Σₖ %x[n, c, i, places[k, j]] · weights[k, j]
    %y = linalg.generic … Σₖ %a[n, c, places[k, i], j] · weights[k, i]
"""

from __future__ import annotations

from motet.compiler.frontends.onnx.tensors import builtin, kind_of, replace
from motet.compiler.frontends.torch import operands
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.sizes import constant_index
from motet.compiler.operators.arithmetic import Floats
from motet.compiler.operators.pointwise import size_of
from motet.compiler.operators.resize import Filter, ResizedAxis, resize

_CUBIC_ANTIALIASED = -0.5


def _lower(operator: ir.Operation) -> None:
    source = builtin(operator.operands[0])
    kind, result = ir.RankedTensorType(source.type), kind_of(operator.results[0])
    if result is None:
        raise ValueError("expected a result of known rank")
    factors, mode = operands.numbers(operator.operands[2]), str(operands.constant(operator.operands[3]))
    aligned, antialias = (bool(operands.constant(operand)) for operand in operator.operands[4:6])
    first = kind.rank - len(factors)
    axes: list[ResizedAxis] = []
    for axis, factor in enumerate(factors, first):
        size, count = kind.shape[axis], result.extents[axis]
        scale = factor if factor > 0 and not aligned else None
        if antialias and aligned:  # the filter is as wide as the distance of two results
            scale = (count - 1) / (size - 1) if size > 1 else float("inf")
        if DYNAMIC in (size, count):
            given = operator.operands[1]
            wanted = None if operands.is_none(given) else operands.elements(given)[axis - first]
            counted = count if count != DYNAMIC else _count(source, axis, factor, wanted)
            axes.append(ResizedAxis(axis, size_of(source, axis) if size == DYNAMIC else size, counted, scale))
        elif size != count or scale not in (None, 1):
            axes.append(ResizedAxis(axis, size, count, scale))
    replace(operator, resize(source, axes, _filter(mode, aligned, antialias, kind.element_type)))


def _filter(mode: str, aligned: bool, antialias: bool, element: ir.Type) -> Filter:
    """The filter of PyTorch, which calculates positions in f32 but for f64 elements of weighted sums."""
    if mode.startswith("nearest"):
        positions = "tf_half_pixel_for_nn" if mode == "nearest-exact" else "asymmetric"
        return Filter("nearest", positions, "floor", single=True, by_steps=True)
    return Filter(
        mode, "align_corners" if aligned and not antialias else "half_pixel", antialias=antialias, excludes=antialias,
        cubic=_CUBIC_ANTIALIASED if antialias else -0.75, single=not isinstance(element, ir.F64Type), by_steps=True,
    )


def _count(source: ir.Value, axis: int, factor: float, wanted: ir.Value | None) -> ir.Value:
    """The extent of the result: given by the program, or the source's times `factor`."""
    word = ir.IntegerType.get_signless(64)
    if wanted is not None:
        return create("arith.index_cast", ir.IndexType.get(), [create("torch_c.to_i64", word, [wanted])])
    size = size_of(source, axis)
    if factor == int(factor):
        return create("arith.muli", size.type, [size, constant_index(int(factor))])
    product = Floats(ir.F64Type.get()).of_index(size) * factor
    return create("arith.index_cast", size.type, [create("arith.fptosi", word, [product])])


RULES = {"torch.motet.resize": _lower}
