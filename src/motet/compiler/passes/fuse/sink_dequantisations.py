"""sink-dequantisations: lets readers of dequantised bytes read the bytes.

    %r = dequantise %x : i8 to f32                        linalg.generic … ins(%x, %y : i8, f32)
    linalg.generic … ins(%r, %y : f32, f32)        →        %a = (ext %x - zero) * scale; addf %a, …
      addf …

    %r = dequantise %x                                    %p = maximum of the bytes over windows
    maximum of %r over windows                     →      dequantise %p

Otherwise the operation that makes the bytes would store them as floats as well. Numbers are the same: scales are
positive, so that the greatest byte is the greatest number. Products are the business of narrow-quantised-products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of
from motet.compiler.ir.current import create
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.nests import border_of, converted, is_elementwise, nest, read_instead, steps_of
from motet.compiler.kernels.roles import Role, known_number, role_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.loop_tensors import filled
from motet.compiler.passes.fuse.marks import MARK
from motet.compiler.passes.fuse.quantised import Known, Quantised, holds_bytes, read_quantised

_READERS = (Role.ELEMENTWISE, Role.REDUCTION, Role.WINDOW)


@dataclass(frozen=True)
class SinkDequantisations(FunctionPass):
    """Dequantisations by numbers: those by tensors of scales are left where they are."""

    name = "sink-dequantisations"

    def run_on(self, function: ir.Operation) -> bool:
        if not holds_bytes(function):
            return False
        changed, known = False, Known()
        for block in function.regions[0].blocks:
            for each in [entry.operation for entry in block.operations]:
                if each.name == "linalg.generic" and MARK not in each.attributes and role_of(each) in _READERS:
                    changed |= _take_maximum(each, known) or _read_bytes(each, known)
        if changed:
            erase_unused(function)
        return changed


def _simple(value: ir.Value, known: Known) -> Quantised | None:
    """`value` as bytes that are dequantised to floats by positive numbers; None if it is something else."""
    tensor = read_quantised(value, known)
    if tensor is None or not tensor.is_real or tensor.unsigned is None or tensor.sides:
        return None
    return tensor if all(isinstance(scale, float) and scale > 0 for scale in tensor.scales) else None


def _read_bytes(reader: ir.Operation, known: Known) -> bool:
    """Dequantises operands of f32 in the body of `reader`, unless it is itself a step of a dequantisation."""
    if is_elementwise(reader) and read_quantised(reader.results[0], known) is not None:
        return False
    changed = False
    for number in range(len(maps_of(reader)) - len(reader.results)):
        kind = reader.operands[number].type
        real = isinstance(kind, ir.RankedTensorType) and str(kind.element_type) == "f32"
        tensor = _simple(reader.operands[number], known) if real else None
        if tensor is not None:
            read_instead(reader, number, tensor.stored, tensor.write_real)
            changed = True
    return changed


def _take_maximum(reader: ir.Operation, known: Known) -> bool:
    """Takes the maximum of bytes over windows instead of that of the numbers that they stand for."""
    if role_of(reader) is not Role.WINDOW or steps_of(reader) != ["arith.maximumf", "linalg.yield"]:
        return False
    block = reader.regions[0].blocks[0]
    count = len(block.arguments) - 1
    if set(block.operations[0].operation.operands) != {block.arguments[0], block.arguments[count]}:
        return False
    kind = ir.RankedTensorType(reader.results[0].type)
    if known_number(reader.operands[count]) != -math.inf or not kind.has_static_shape:
        return False
    tensor = _padded_maximum(reader.operands[0], known)
    if tensor is None:
        return False
    byte = ir.RankedTensorType(tensor.stored.type).element_type
    with reader.location:
        initial = filled(tensor.limits[0], ir.RankedTensorType.get(kind.shape, byte), [], reader)
    name = "arith.maxui" if tensor.unsigned else "arith.maxsi"
    greatest = nest(
        reader, [tensor.stored, *list(reader.operands)[1:count]], initial, maps_of(reader),
        lambda block: create(name, byte, [block.arguments[count], block.arguments[0]]),
    )
    real = converted(reader, greatest, kind.element_type, lambda element: tensor.write_real(element, kind.element_type))
    reader.results[0].replace_all_uses_with(real)
    return True


def _padded_maximum(value: ir.Value, known: Known) -> Quantised | None:
    """What is maximised, padded by the least byte where `value` is padded by minus infinity."""
    maker = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if maker is None or maker.name != "tensor.pad":
        return _simple(value, known)
    border = border_of(maker)
    tensor = None if border is None or known_number(border) != -math.inf else _simple(maker.operands[0], known)
    return None if tensor is None else tensor.padded(maker, tensor.limits[0])
