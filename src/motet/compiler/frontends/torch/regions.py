"""lower-regions: in the `torch` dialect, lowers torchvision's pooling of regions (`compiler/operators/regions.py`) and
deformable convolutions (`deformed.py`).

    torch.torchvision.roi_align(%x, %regions, 0.25, 7, 7, 2, true)
 →  %y = linalg.generic { mean of 2 × 2 samples, each between 2 × 2 elements of the region's image }

Source: torchvision's `csrc/ops/cpu/roi_align_kernel.cpp`, `ps_roi_align_kernel.cpp`.
"""

from __future__ import annotations

from motet.compiler.frontends.onnx.tensors import builtin, kind_of, replace, replace_all
from motet.compiler.frontends.torch import operands
from motet.compiler.frontends.torch.region_pools import channels, lower_pool
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC
from motet.compiler.operators.deformed import DeformedImage, DeformedWindows, deformed_convolution
from motet.compiler.operators.regions import AlignedRegions, RegionOperands

_ALIGN, _SPLIT_ALIGN = "torch.torchvision.roi_align", "torch.torchvision.ps_roi_align"
_POOL, _SPLIT_POOL = "torch.torchvision.roi_pool", "torch.torchvision.ps_roi_pool"


def _lower(operator: ir.Operation) -> None:
    name = operands.operator_name(operator)
    is_split = name in (_SPLIT_ALIGN, _SPLIT_POOL)
    image = kind_of(operator.operands[0])
    if image is None or (is_split and image.extents[1] == DYNAMIC):
        return
    scale, (high, wide) = operands.number(operator.operands[2]), map(operands.integer, operator.operands[3:5])
    of = RegionOperands(builtin(operator.operands[0]), builtin(operator.operands[1]), scale, (high, wide), is_split)
    if name in (_POOL, _SPLIT_POOL):
        lower_pool(operator, of)
        return
    samples = operands.integer(operator.operands[5])
    is_shifted = is_split or bool(operands.constant(operator.operands[6]))
    aligned = AlignedRegions(of, samples, 0.5 if is_shifted else 0.0, None if is_shifted else 1.0)
    replace_all(operator, [aligned.pooled(), *channels(operator, of)])


def _deformed(operator: ir.Operation) -> None:
    """The options are strides, pads and dilations of both axes, the numbers of groups and of groups of offsets, and
    whether there is a mask."""
    image, weights, offsets, mask, bias = (builtin(operand) for operand in operator.operands[:5])
    options = [operands.integer(operand) for operand in operator.operands[5:13]]
    windows = DeformedWindows(options[:2], options[2:4], options[4:6], *options[6:])
    kernel = ir.RankedTensorType(weights.type).shape[2:]
    used = mask if operands.constant(operator.operands[13]) else None
    replace(operator, deformed_convolution(DeformedImage(image, offsets, used, kernel, windows), weights, bias))


RULES = {
    **dict.fromkeys((_ALIGN, _SPLIT_ALIGN, _POOL, _SPLIT_POOL), _lower), "torch.torchvision.deform_conv2d": _deformed,
}
