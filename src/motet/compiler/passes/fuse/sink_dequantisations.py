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
from dataclasses import dataclass, replace

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of
from motet.compiler.ir.create import create
from motet.compiler.ir.erase import erase_unused
from motet.compiler.kernels.roles import Role, known_number, role_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.dequantised import (
    Dequantised,
    Known,
    holds_bytes,
    is_elementwise,
    nest,
    pad_bytes,
    read_dequantised,
)
from motet.compiler.passes.fuse.group import MARK

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


def _simple(value: ir.Value, known: Known) -> Dequantised | None:
    """`value` as bytes that are dequantised to floats by positive numbers; None if it is something else."""
    found = read_dequantised(value, known)
    if found is None or not found.is_real or found.unsigned is None or found.sides:
        return None
    return found if all(isinstance(scale, float) and scale > 0 for scale in found.scales) else None


def _read_bytes(reader: ir.Operation, known: Known) -> bool:
    """Dequantises operands of f32 in the body of `reader`, unless it is itself a step of a dequantisation."""
    if is_elementwise(reader) and read_dequantised(reader.results[0], known) is not None:
        return False
    block, changed = reader.regions[0].blocks[0], False
    for number in range(len(maps_of(reader)) - len(reader.results)):
        kind = reader.operands[number].type
        if not isinstance(kind, ir.RankedTensorType) or str(kind.element_type) != "f32":
            continue
        found = _simple(reader.operands[number], known)
        if found is None:
            continue
        argument = block.arguments[number]
        uses = [(use.owner, use.operand_number) for use in argument.uses]
        real = argument.type
        reader.operands[number] = found.bytes
        argument.set_type(ir.RankedTensorType(found.bytes.type).element_type)
        with reader.location, ir.InsertionPoint.at_block_begin(block):
            value = _dequantised(argument, found, real)
        for owner, position in uses:
            owner.operation.operands[position] = value
        changed = True
    return changed


def _dequantised(byte: ir.Value, what: Dequantised, real: ir.Type) -> ir.Value:
    """The number that `byte` stands for."""
    word = ir.IntegerType.get_signless(32)
    name = "arith.extui" if what.unsigned else "arith.extsi"
    value = ir.Operation.create(name, results=[word], operands=[byte]).result
    if what.zero:
        zero = ir.Operation.create(
            "arith.constant", results=[word], attributes={"value": ir.IntegerAttr.get(word, what.zero)}).result
        value = ir.Operation.create("arith.subi", results=[word], operands=[value, zero]).result
    value = ir.Operation.create("arith.sitofp", results=[real], operands=[value]).result
    for scale in what.scales:
        factor = ir.Operation.create(
            "arith.constant", results=[real], attributes={"value": ir.FloatAttr.get(real, scale)}).result
        value = ir.Operation.create("arith.mulf", results=[real], operands=[value, factor]).result
    return value


def _take_maximum(reader: ir.Operation, known: Known) -> bool:
    """Takes the maximum of bytes over windows instead of that of the numbers that they stand for."""
    body = [entry.operation for entry in reader.regions[0].blocks[0].operations]
    block = reader.regions[0].blocks[0]
    if role_of(reader) is not Role.WINDOW or [each.name for each in body] != ["arith.maximumf", "linalg.yield"]:
        return False
    count = len(block.arguments) - 1
    if set(body[0].operands) != {block.arguments[0], block.arguments[count]}:
        return False
    if known_number(reader.operands[count]) != -math.inf:
        return False
    found = _padded_maximum(reader.operands[0], known)
    if found is None:
        return False
    kind = ir.RankedTensorType(reader.results[0].type)
    byte = ir.RankedTensorType(found.bytes.type).element_type
    if not kind.has_static_shape:
        return False
    with reader.location:
        least = create("arith.constant", [byte], [], reader, {"value": ir.IntegerAttr.get(byte, _least(found))}).result
        empty = create("tensor.empty", [ir.RankedTensorType.get(kind.shape, byte)], [], reader).result
        scalar = ir.AffineMap.get(kind.rank, 0, [], reader.context)
        whole = ir.AffineMap.get_identity(kind.rank, reader.context)
    initial = nest(reader, [least], empty, [scalar, whole], lambda one: one.arguments[0])
    name = "arith.maxui" if found.unsigned else "arith.maxsi"
    iterators = [str(each) for each in ir.ArrayAttr(reader.attributes["iterator_types"])]
    greatest = nest(
        reader, [found.bytes, *list(reader.operands)[1:count]], initial, maps_of(reader),
        lambda one: ir.Operation.create(name, results=[byte], operands=[one.arguments[count], one.arguments[0]]).result,
        frozenset(i for i, each in enumerate(iterators) if "reduction" in each),
    )
    real = nest(
        reader, [greatest], reader.operands[count], [whole, whole],
        lambda one: _dequantised(one.arguments[0], found, kind.element_type),
    )
    reader.results[0].replace_all_uses_with(real)
    return True


def _least(found: Dequantised) -> int:
    return 0 if found.unsigned else -128


def _padded_maximum(value: ir.Value, known: Known) -> Dequantised | None:
    """What is maximised, padded by the least byte where `value` is padded by minus infinity."""
    maker = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if maker is None or maker.name != "tensor.pad":
        return _simple(value, known)
    inner = list(maker.regions[0].blocks[0].operations)
    if len(inner) != 1 or known_number(inner[0].operation.operands[0]) != -math.inf:
        return None
    found = _simple(maker.operands[0], known)
    return None if found is None else replace(found, bytes=pad_bytes(maker, found.bytes, _least(found)))
