"""settle-pads: in the `torch` dialect, splits a constant pad by negative amounts into slices and a non-negative pad.

    %1 = torch.aten.constant_pad_nd %0, [1, -1], %c   →   %a = torch.aten.slice.Tensor %0, 0, 0, 3, 1   // of [4]
                                                          %1 = torch.aten.constant_pad_nd %a, [1, 0], %c

A slice may be asked for more elements than there are, a pad may not: its extents are asserted.

If one side grows by what the other shrinks, the result has the type of the source, and upstream would fold the pad to
its source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from motet.compiler.frontends.onnx.tensors import know_operations
from motet.compiler.frontends.torch.extents import assert_at_most, size_along
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.sizes import constant_index

_TYPE = re.compile(r"!torch\.vtensor<\[(.*)\],(\w+)>")
_TO_THE_END = (1 << 63) - 1


def settle_pads(module: ir.Module) -> None:
    """Rewrites the module in place."""
    with module.context:
        pads = find_operations(module, "torch.aten.constant_pad_nd")
        if pads:
            know_operations(module)
        for pad in pads:
            amounts = constant_numbers(pad.operands[1])
            match = _TYPE.fullmatch(str(pad.operands[0].type))
            if amounts is not None and match is not None and min(amounts, default=0) < 0:
                _settle(pad, amounts, match[1].split(","), match[2])


def constant_numbers(value: ir.Value) -> list[int] | None:
    """The numbers of a list; None if one is dynamic."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "torch.prim.ListConstruct":
        return None
    numbers: list[int] = []
    for element in owner.operands:
        made = element.owner
        if isinstance(made, ir.Block) or made.name != "torch.constant.int":
            return None
        numbers.append(ir.IntegerAttr(made.attributes["value"]).value)
    return numbers


def _settle(pad: ir.Operation, amounts: Sequence[int], extents: list[str], element: str) -> None:
    """Rewrites `pad`; `amounts` has two numbers for each axis, starting with the last axis."""
    at = ir.InsertionPoint(pad)

    def create(name: str, kind: ir.Type, operands: Sequence[ir.Value]) -> ir.Value:
        return ir.Operation.create(name, results=[kind], operands=operands, loc=pad.location, ip=at).results[0]

    def number(value: int) -> ir.Value:
        attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
        return ir.Operation.create(
            "torch.constant.int", results=[ir.Type.parse("!torch.int")], attributes={"value": attribute},
            loc=pad.location, ip=at,
        ).results[0]

    source = pad.operands[0]
    for place in range(0, len(amounts), 2):
        axis = len(extents) - 1 - place // 2
        low, high = (min(amount, 0) for amount in amounts[place : place + 2])
        if not low and not high:
            continue
        if extents[axis] == "?":
            with pad.location, at:
                said = f"axis {axis} of its input must be at least {-low - high}, what its pads remove"
                assert_at_most(constant_index(-low - high), size_along(pad.operands[0], axis), said)
        else:
            extents[axis] = str(max(0, int(extents[axis]) + low + high))
        kind = ir.Type.parse(f"!torch.vtensor<[{','.join(extents)}],{element}>")
        bounds = [number(value) for value in (axis, -low, high or _TO_THE_END, 1)]
        source = create("torch.aten.slice.Tensor", kind, [source, *bounds])
    wider = [max(amount, 0) for amount in amounts]
    if any(wider):
        listed = create("torch.prim.ListConstruct", pad.operands[1].type, [number(amount) for amount in wider])
        source = create("torch.aten.constant_pad_nd", pad.results[0].type, [source, listed, pad.operands[2]])
    elif source.type != pad.results[0].type:
        source = create("torch.tensor_static_info_cast", pad.results[0].type, [source])
    pad.results[0].replace_all_uses_with(source)
    pad.erase()
