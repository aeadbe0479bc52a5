"""lower-blocks: in the `torch` dialect, lowers unfold to a copy of windows.

    torch.operator "torch.aten.im2col"(%x, [3, 3], [1, 1], [0, 0], [2, 2])
 →  %y = linalg.generic { %x[n, c, 2 · row + i, 2 · column + j] }, of shape [N, C, 3, 3, rows, columns]
"""

from __future__ import annotations

from motet.compiler.frontends.onnx.tensors import builtin, replace
from motet.compiler.frontends.torch import operands
from motet.compiler.ir._mlir import ir
from motet.compiler.operators.pointwise import WindowRead, merged, pointwise


def _lower(operator: ir.Operation) -> None:
    """Replaces an unfold without padding, of static extents."""
    image = builtin(operator.operands[0])
    kernel, spread, _, step = (operands.integers(operand) for operand in operator.operands[1:5])
    kind = ir.RankedTensorType(image.type)
    *outer, high, wide = kind.shape
    blocks = [
        (extent - gap * (taps - 1) - 1) // stride + 1
        for extent, taps, gap, stride in zip((high, wide), kernel, spread, step, strict=True)
    ]
    first = len(outer)
    places = [{axis: 1} for axis in range(first)]
    places += [{first + axis: spread[axis], first + 2 + axis: step[axis]} for axis in range(2)]
    made = ir.RankedTensorType.get([*outer, *kernel, *blocks], kind.element_type)
    value = pointwise(made, [], [WindowRead(image, places)], lambda values, _: values[0])
    replace(operator, merged(merged(value, first + 2, 2), first - 1, 3))


RULES = {"torch.aten.im2col": _lower}
