"""settle-pads: in the `torch` dialect, splits a constant pad by negative amounts into slices and a non-negative pad.

    %1 = torch.aten.constant_pad_nd %0, [1, -1], %c   →   %a = torch.aten.slice.Tensor %0, 0, 0, 3, 1   // of [4]
                                                          %1 = torch.aten.constant_pad_nd %a, [1, 0], %c

A slice may be asked for more elements than there are, a pad may not: its extents are asserted.

If one side grows by what the other shrinks, the result has the type of the source, and upstream would fold the pad to
its source.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.frontends.onnx.tensors import TorchKind, kind_of, know_operations
from motet.compiler.frontends.torch.extents import assert_at_most, size_along
from motet.compiler.frontends.torch.operands import known_integers, new_integer, new_list
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.sizes import constant_index

_TO_THE_END = (1 << 63) - 1


def settle_pads(module: ir.Module) -> None:
    """Rewrites the module in place."""
    with module.context:
        pads = find_operations(module, "torch.aten.constant_pad_nd")
        if pads:
            know_operations(module)
        for pad in pads:
            amounts, kind = known_integers(pad.operands[1]), kind_of(pad.operands[0])
            if amounts is not None and kind is not None and min(amounts, default=0) < 0:
                with pad.location, ir.InsertionPoint(pad):
                    _settle(pad, amounts, kind)


def _settle(pad: ir.Operation, amounts: Sequence[int], kind: TorchKind) -> None:
    """Rewrites `pad`; `amounts` has two numbers for each axis, starting with the last axis."""
    source, extents, result = pad.operands[0], list(kind.extents), pad.results[0].type
    for place in range(0, len(amounts), 2):
        axis = len(extents) - 1 - place // 2
        low, high = (min(amount, 0) for amount in amounts[place : place + 2])
        if not low and not high:
            continue
        if extents[axis] == DYNAMIC:
            said = f"axis {axis} of its input must be at least {-low - high}, what its pads remove"
            assert_at_most(constant_index(-low - high), size_along(pad.operands[0], axis), said)
        else:
            extents[axis] = max(0, extents[axis] + low + high)
        bounds = [new_integer(value) for value in (axis, -low, high or _TO_THE_END, 1)]
        cut = TorchKind(tuple(extents), kind.element).torch
        source = create("torch.aten.slice.Tensor", cut, [source, *bounds])
    wider = [max(amount, 0) for amount in amounts]
    if any(wider):
        listed = new_list([new_integer(amount) for amount in wider])
        source = create("torch.aten.constant_pad_nd", result, [source, listed, pad.operands[2]])
    elif source.type != result:
        source = create("torch.tensor_static_info_cast", result, [source])
    pad.results[0].replace_all_uses_with(source)
    pad.erase()
