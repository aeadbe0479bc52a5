"""unroll-loops: unrolls loops over tensors whose iterations are known and few.

    %r = scf.for %i = 0 to 2 step 1 iter_args(%s = %0) {      %a = tensor.extract_slice %x[0] …
      %a = tensor.extract_slice %x[%i] …                  →   %b = linalg.generic … ins(%a, %0) …
      %b = linalg.generic … ins(%a, %s) …                     %c = tensor.extract_slice %x[1] …
      scf.yield %b }                                          %d = linalg.generic … ins(%c, %b) …

Recurrent networks have such loops. GPU back ends have code for loops that `kernels/recurrence.py` reads, and keep those
that are faster as one launch. Each iteration of others becomes separate launches, and all iterations share code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import arith, ir, run_pipeline
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.ir.remap import remap
from motet.compiler.kernels.loop_places import loop_values
from motet.compiler.kernels.recurrence import Recurrence, read_loop
from motet.compiler.passes.base import Pass

FOR = "scf.for"
MOST = 8192  # operations that unrolling may create from a loop
_CLEAN = "canonicalize,cse"
_TAKEN = ("tensor.", "linalg.", "arith.", "math.", "affine.apply", "cf.assert", "scf.yield", FOR)


Keeps = Callable[[Recurrence], bool]


def never(found: Recurrence) -> bool:
    """Keeps no loop."""
    return False


@dataclass(frozen=True)
class UnrollLoops(Pass):
    """Keeps loops that would become more than `most` operations, with `products` those without matrix products, and
    recurrences that `keeps` accepts."""

    name = "unroll-loops"
    products: bool = False
    most: int = MOST
    keeps: Keeps = never

    def run(self, program: Program) -> bool:
        found = False
        for function in public_functions(program.module):
            for block in function.regions[0].blocks:
                for operation in [each.operation for each in block.operations]:
                    if self._unrolls(operation):
                        results = _unroll(operation, ir.InsertionPoint(operation))
                        for old, new in zip(operation.results, results, strict=True):
                            old.replace_all_uses_with(new)
                        operation.erase()
                        found = True
        if found:
            run_pipeline(program.module, _CLEAN)
        return found

    def _unrolls(self, operation: ir.Operation) -> bool:
        if not is_taken_apart(operation, self.most) or (self.products and not _multiplies(operation)):
            return False
        found = None if self.keeps is never else read_loop(operation)
        return found is None or not self.keeps(found)


def is_taken_apart(operation: ir.Operation, most: int = MOST) -> bool:
    return operation.name == FOR and 0 < _length(operation) <= most


def _multiplies(loop: ir.Operation) -> bool:
    """Whether an iteration has a product of matrices: a reduction of several operands."""
    return any(
        "reduction" in str(entry.operation.attributes["iterator_types"]) and _inputs(entry.operation) > 1
        if entry.operation.name == "linalg.generic"
        else entry.operation.name == FOR and _multiplies(entry.operation)
        for entry in loop.regions[0].blocks[0].operations
    )


def _inputs(generic: ir.Operation) -> int:
    """The number of operands that are only read: a maximum with its position has one, and two results."""
    return next(iter(ir.DenseI32ArrayAttr(generic.attributes["operandSegmentSizes"])))


def _length(loop: ir.Operation) -> int:
    """The number of operations that `loop` becomes; 0 if it is not unrolled."""
    values = loop_values(loop)
    if values is None or not len(loop.results):
        return 0
    count = 0
    for entry in loop.regions[0].blocks[0].operations:
        operation = entry.operation
        if not operation.name.startswith(_TAKEN) or not all(map(_is_known, operation.results)):
            return 0
        if operation.name == FOR:
            inner = _length(operation)
            if inner == 0:
                return 0
            count += inner
        count += 1
    return count * max(1, len(values))


def _is_known(value: ir.Value) -> bool:
    """Whether a value is not a tensor whose extents may differ between iterations."""
    return not isinstance(value.type, ir.RankedTensorType) or ir.RankedTensorType(value.type).has_static_shape


def _unroll(loop: ir.Operation, point: ir.InsertionPoint) -> Sequence[ir.Value]:
    """The results of `loop`, whose iterations are created at `point`."""
    body = loop.regions[0].blocks[0]
    operations = [entry.operation for entry in body.operations]
    carried = list(loop.operands)[3:]
    for current in loop_values(loop) or ():
        with loop.location, point:
            index = arith.ConstantOp(body.arguments[0].type, current)
        mapping: dict[ir.Value, ir.Value] = dict(zip(body.arguments, [index.result, *carried], strict=True))
        for operation in operations[:-1]:
            copy = operation.clone(point)
            remap(copy, mapping)
            results: Sequence[ir.Value] = list(copy.results)
            if operation.name == FOR:
                results = _unroll(copy, ir.InsertionPoint(copy))
                copy.erase()
            mapping.update(zip(operation.results, results, strict=True))
        carried = [mapping.get(operand, operand) for operand in operations[-1].operands]
    return carried
