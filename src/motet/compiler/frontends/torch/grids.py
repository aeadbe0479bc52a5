"""lower-grids: in the `torch` dialect, lowers grid samples (`compiler/operators/grid_sample.py`).

    torch.operator "torch.aten.grid_sampler_2d"(%x, %grid, 0, 0, false)
 →  %y = linalg.generic { Σ over 2 × 2 elements: tensor.extract %x[%n, %c, %row, %column] · weight }
"""

from __future__ import annotations

from motet.compiler.frontends.onnx.tensors import builtin, replace
from motet.compiler.frontends.torch import operands
from motet.compiler.ir._mlir import ir
from motet.compiler.operators.grid_sample import MODES, PADDINGS, GridSampling, grid_sample


def _lower(operator: ir.Operation) -> None:
    mode, padding = (operands.integer(operand) for operand in operator.operands[2:4])
    how = GridSampling(MODES[mode], PADDINGS[padding], bool(operands.constant(operator.operands[4])))
    replace(operator, grid_sample(builtin(operator.operands[0]), builtin(operator.operands[1]), how))


RULES = dict.fromkeys(("torch.aten.grid_sampler_2d", "torch.aten.grid_sampler_3d"), _lower)
