"""fold-widening-casts: lets products of widened operands, and readers of widened vectors, read the narrow tensors.

    %v = linalg.generic … extf %x : bf16 to f32           linalg.generic … ins(%x, %y : bf16, bf16)
    %w = linalg.generic … extf %y : bf16 to f32       →     %a = extf …; %b = extf …
    linalg.generic … ins(%v, %w : f32, f32)                 %p = mulf %a, %b; addf …
      %p = mulf …; addf …

PyTorch programs cast in this way to round once, for example in `torch.nn.Linear` of 16-bit floats. Results are
bit-exact; matrix units multiply narrow numbers exactly, several times as fast as wide ones.

With `all-readers`, used after larger patterns have been found, every reader of a widened tensor does the same;
otherwise its producer would store it in the wide type, or in both, for example for a normalisation.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.nests import PRODUCT, read_instead, steps_of, widened
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.marks import MARK

_MOVING = ["linalg.yield"]


@dataclass(frozen=True)
class FoldWideningCasts(FunctionPass):
    """Operations marked as part of a larger pattern are left unchanged. `all_readers` includes all readers of a widened
    tensor, not only products and readers of vectors."""

    name = "fold-widening-casts"
    all_readers: bool = False

    def run_on(self, function: ir.Operation) -> bool:
        found = False
        for block in function.regions[0].blocks:
            readers = [e.operation for e in block.operations if e.operation.name == "linalg.generic"]
            readers = [reader for reader in readers if MARK not in reader.attributes and steps_of(reader) != _MOVING]
            folded = [_fold(reader, self.all_readers) for reader in readers]
            if any(folded):
                found = True
                erase_unused(function)
        return found


def _fold(reader: ir.Operation, all_readers: bool) -> bool:
    """Moves widening casts into `reader`: of both operands of a product of one type, of operands that it reads
    several times (as a vector added to every row), or, with `all_readers`, of any operand. An operation that only
    broadcasts a vector stays a view of it."""
    inputs = len(maps_of(reader)) - len(reader.results)
    sources = {number: source for number in range(inputs) if (source := _widened(reader.operands[number])) is not None}
    if steps_of(reader) == PRODUCT and "reduction" in str(reader.attributes["iterator_types"]):
        kinds = {str(ir.RankedTensorType(source.type).element_type) for source in sources.values()}
        if len(sources) != inputs or len(kinds) != 1:
            return False
    elif not all_readers:
        points = len(ir.ArrayAttr(reader.attributes["iterator_types"]))
        sources = {n: source for n, source in sources.items() if ir.RankedTensorType(source.type).rank < points}
    for number, source in sources.items():
        read_instead(reader, number, source, widened)
    return bool(sources)


def _widened(value: ir.Value) -> ir.Value | None:
    """The tensor of which `value` is an element-wise widening cast; None otherwise."""
    if isinstance(value.owner, ir.Block):
        return None
    operation = value.owner.operation
    if operation.name != "linalg.generic" or MARK in operation.attributes or len(operation.operands) != 2:
        return None
    whole = ir.AffineMap.get_identity(ir.RankedTensorType(value.type).rank, operation.context)
    if any(each != whole for each in maps_of(operation)) or steps_of(operation) != ["arith.extf", "linalg.yield"]:
        return None
    block = operation.regions[0].blocks[0]
    return operation.operands[0] if block.operations[0].operation.operands[0] == block.arguments[0] else None
