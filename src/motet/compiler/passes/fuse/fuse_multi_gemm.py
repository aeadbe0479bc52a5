"""fuse-multi-gemm: marks products whose results are combined element by element to become one kernel.

    %1 = linalg.generic … (matmul of %a, %b)          both products and the addition are marked
    %2 = linalg.generic … (matmul of %c, %d)     →    `motet.joined = 0`, and become one group
    %3 = linalg.generic … addf %1, %2

Element-wise operations between the products and their combination are included, such as the activation of a gated
layer. The pass leaves the program unchanged if a part is also used elsewhere, or if `accepts` predicts that several
kernels are faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.kernels.kernel import known_product
from motet.compiler.kernels.multi_gemm import ProductShape
from motet.compiler.kernels.roles import Role, Structure, structure_of
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.candidates import FunctionView
from motet.compiler.passes.fuse.marks import JOINED, MARK

_LARGEST = 24  # operations of one kernel

Accepts = Callable[[Sequence[ProductShape]], bool]


def always(products: Sequence[ProductShape]) -> bool:
    """Accepts all products."""
    return bool(products)


@dataclass(frozen=True)
class FuseMultiGemm(Pass):
    """Marks the products that `accepts` accepts."""

    name = "fuse-multi-gemm"
    accepts: Accepts = always

    def run(self, program: Program) -> bool:
        number = 0
        for function in public_functions(program.module):
            f = FunctionView(function, program)
            for members in _found(f, self.accepts):
                for position in members:
                    with function.context:
                        f.operations[position].attributes[JOINED] = ir.IntegerAttr.get(
                            ir.IntegerType.get_signless(64), number
                        )
                number += 1
        return number > 0


def _found(f: FunctionView, accepts: Accepts) -> list[list[int]]:
    """The operations to be marked together, by position; the last operations are tried first, as they include most."""
    taken: set[int] = set()
    found: list[list[int]] = []
    for last in reversed(range(len(f.operations))):
        if last in taken or not _is_element_wise(f, last):
            continue
        members = _before(f, last)
        products = [position for position in members if f.role(position) is Role.CONTRACTION]
        if len(products) < 2 or len(members) > _LARGEST or taken & set(members):
            continue
        shapes = _shapes(f, products)
        if shapes is not None and accepts(shapes):
            taken |= set(members)
            found.append(members)
    return found


def _is_element_wise(f: FunctionView, position: int) -> bool:
    """Whether an operation iterates over all points of its single result, with identity maps."""
    operation = f.operations[position]
    if operation.name != "linalg.generic" or MARK in operation.attributes or len(operation.results) != 1:
        return False
    if f.role(position) is not Role.ELEMENTWISE:
        return False
    structure = structure_of(operation)
    return structure is not None and _is_identity(structure, len(structure.maps) - 1)


def _is_identity(structure: Structure, operand: int) -> bool:
    """Whether an operand is read or written with the identity map of the parallel loops."""
    parallel = [dim for dim in range(len(structure.sizes)) if dim not in structure.reduced]
    return [entry.single for entry in structure.maps[operand]] == parallel


def _before(f: FunctionView, last: int) -> list[int]:
    """The element-wise operations and products that lead only to `last`, in order, without element-wise operations
    that no product leads to. Empty if an operand of a product depends on another product."""
    members: set[int] = set()
    factors: set[int | None] = set()
    waiting = {last}
    while waiting:
        position = max(waiting)  # all readers of its result have been visited
        waiting.remove(position)
        members.add(position)
        structure = structure_of(f.operations[position])
        if structure is None:
            return []
        for number, operand in enumerate(f.operations[position].operands):
            maker = f.maker(operand)
            if f.role(position) is Role.CONTRACTION and number < structure.inputs:
                factors.add(maker)
            elif maker is not None and _is_identity(structure, number) and _leads_on(f, maker, members):
                waiting.add(maker)
    if factors & members:
        return []
    leading: list[int] = []
    for position in sorted(members):
        makers = {f.maker(operand) for operand in f.operations[position].operands}
        if f.role(position) is Role.CONTRACTION or makers & set(leading):
            leading.append(position)
    return leading


def _leads_on(f: FunctionView, position: int, members: set[int]) -> bool:
    """Whether an operation is a product or element-wise, and only `members` read it."""
    return f.users(position) <= members and (_is_element_wise(f, position) or _is_product(f, position))


def _is_product(f: FunctionView, position: int) -> bool:
    operation = f.operations[position]
    if f.role(position) is not Role.CONTRACTION or MARK in operation.attributes:
        return False
    structure = structure_of(operation)
    return structure is not None and _is_identity(structure, 2)


def _shapes(f: FunctionView, products: Sequence[int]) -> list[ProductShape] | None:
    """The shapes of the products; None if their results differ in shape."""
    factors: list[ir.Value] = []
    found: list[ProductShape] = []
    for position in products:
        operation = f.operations[position]
        structure = structure_of(operation)
        if structure is None:
            return None
        left, right, _ = operation.operands
        factors += [operand for operand in (left, right) if operand not in factors]
        found.append(_shape(operation, structure, (factors.index(left), factors.index(right))))
    kinds = {str(ir.RankedTensorType(f.operations[position].results[0].type).shape) for position in products}
    return found if len(kinds) == 1 and len({(s.batch, s.m, s.n) for s in found}) == 1 else None


def _shape(operation: ir.Operation, structure: Structure, numbers: tuple[int, int]) -> ProductShape:
    left, right, result = ({e.single for e in each if e.single is not None} for each in structure.maps)
    groups = (left & right & result, (left & result) - right, (right & result) - left, structure.reduced)
    batch, m, n, k = (known_product(structure.sizes[dim] for dim in dims) for dims in groups)
    first, second, third = (str(ir.RankedTensorType(operand.type).element_type) for operand in operation.operands)
    return ProductShape(batch, m, n, k, (first, second, third), *numbers)
