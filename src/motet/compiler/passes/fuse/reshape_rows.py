"""reshape-rows: rewrites a normalisation and its element-wise users of another shape on their common extents.

    %n = … mean, variance, … on 16x32x65536                     all on 16x32x16x64x64, where they are one kernel;
    %e = tensor.expand_shape %n : … into 16x512x64x64       →   reshapes are before and after
    linalg.generic … (%e * %scale + %shift) on 16x512x64x64

Group normalisation has this form. Included are the element-wise operations and reductions that make the reshaped
tensor, as far as they run over the same points or rows, and the element-wise operations that follow over the points of
the new shape. The pass leaves the program unchanged if more than one result is read elsewhere, or without a reduction.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.kernels.roles import Role, is_unit_reshape, structure_of
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.candidates import Candidate, FunctionView
from motet.compiler.passes.fuse.marks import MARK
from motet.compiler.passes.fuse.reshape_common_shape import NoRefinement, inward, outward
from motet.compiler.passes.fuse.rewrite_candidate import CandidateBuilder
from motet.compiler.passes.fuse.rules import LARGEST_GROUP, Space, space_of

_NUMBER = -1  # the temporary mark of operations under construction
_WORK = (Role.ELEMENTWISE, Role.REDUCTION)
_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")


@dataclass(frozen=True)
class ReshapeRows(Pass):
    """Considers reshapes of rows that have no other reader."""

    name = "reshape-rows"

    def run(self, program: Program) -> bool:
        found = False
        for function in public_functions(program.module):
            done = [_rewrite(candidate) for candidate in _candidates(function, program)]
            if done:  # including those given up halfway
                erase_unused(function)
                _unmark(function)
            found |= any(done)
        return found


def _candidates(function: ir.Operation, program: Program) -> list[Candidate]:
    """Disjoint candidates."""
    f = FunctionView(function, program)
    taken: set[int] = set()
    found: list[Candidate] = []
    for position, operation in enumerate(f.operations):
        if operation.name not in _RESHAPES or position in taken or is_unit_reshape(operation):
            continue
        members = _members(f, position)
        if members is not None and not members & taken:
            taken |= members
            found.append(f.candidate(sorted(members), _NUMBER))
    return found


def _unmark(function: ir.Operation) -> None:
    for entry in function.regions[0].blocks[0].operations:
        attributes = entry.operation.attributes
        if MARK in attributes and ir.IntegerAttr(attributes[MARK]).value == _NUMBER:
            del attributes[MARK]


class _SharedBuilder(CandidateBuilder):
    """Assumes that an outer value that several operations read has the same extents in all of them."""

    def __post_init__(self) -> None:
        for number, operation in enumerate(self.candidate.operations):
            self._declare(number, operation)
        names: dict[ir.Value, str] = {}
        for (number, k), value in self.outside():
            if not isinstance(value.type, ir.RankedTensorType):
                continue
            name = self._names(number)[k]
            for axis in range(value.type.rank):
                self.extents.join(names.setdefault(value, name), axis, name, axis)
        self.extents.settle()


def _rewrite(candidate: Candidate) -> bool:
    """Replaces `candidate`'s operations by refined ones; returns whether that was possible."""
    last = candidate.operations[-1]
    try:
        builder = _SharedBuilder(candidate)
        with ir.InsertionPoint(last), last.location:
            inputs = [inward(value, builder.tensor(key)) for key, value in builder.outside()]
            replacement = outward(builder.build(inputs, _NUMBER), builder.result())
    except NoRefinement:
        return False
    last.results[0].replace_all_uses_with(replacement)
    return True


def _members(f: FunctionView, reshape: int) -> set[int] | None:
    """The operations around a reshape that may become one kernel."""
    made = _plain(f, f.inputs(reshape)[0])
    if made is None or f.role(made) is not Role.ELEMENTWISE:
        return None
    before = _before(f, made)
    if not any(f.role(position) is Role.REDUCTION for position in before):
        return None
    after, reshapes = _after(f, made, before)
    members = before | after | reshapes
    exits = [position for position in members if not f.users(position) <= members]
    if not after or exits != [max(after)] or len(members) > LARGEST_GROUP:
        return None
    return members


def _plain(f: FunctionView, value: ir.Value) -> int | None:
    """The operation that makes `value`, looking through reshapes."""
    position = f.maker(value)
    while position is not None and f.role(position) is Role.ALIAS:
        position = f.maker(f.inputs(position)[0])
    return position


def _space(f: FunctionView, position: int) -> Space | None:
    """The space of a loop nest; None for operations that cannot join."""
    operation = f.operations[position]
    free = operation.name == "linalg.generic" and MARK not in operation.attributes  # not part of attention
    structure = structure_of(operation) if free else None
    return None if structure is None else space_of(structure)


def _before(f: FunctionView, made: int) -> set[int]:
    """The operations over the same points, or rows of them, that `made` depends on, with reshapes and views between."""
    own = _space(f, made)
    if own is None:
        return set()
    domain = own.extents
    found = {made}
    stack = list(f.inputs(made))
    while stack:
        position = f.maker(stack.pop())
        if position is None or position in found:
            continue
        role, operation = f.role(position), f.operations[position]
        if role is Role.ALIAS:
            if operation.name == "tensor.cast" or not is_unit_reshape(operation):
                continue
        elif role is Role.VIEW:
            if operation.name != "linalg.generic" or MARK in operation.attributes:
                continue
        elif role in _WORK:
            points = _space(f, position)
            if points is None or points.extents != domain[: len(points.extents)]:
                continue
        else:
            continue
        found.add(position)
        stack += f.inputs(position)
    return _closed(f, found, made)


def _closed(f: FunctionView, found: set[int], made: int) -> set[int]:
    """`found` without operations that have readers elsewhere."""
    while True:
        open_ = {position for position in found - {made} if not f.users(position) <= found}
        if not open_:
            return found
        found = found - open_


def _after(f: FunctionView, made: int, before: set[int]) -> tuple[set[int], set[int]]:
    """The element-wise operations that read `made` under another shape, as far as they run over the same points, and
    the reshapes."""
    reshapes: set[int] = set()
    work: set[int] = set()
    domain: tuple[int | None, ...] | None = None
    stack = [made]
    while stack:
        for user in sorted(f.users(stack.pop())):
            if user < 0 or user in before | reshapes | work:
                continue
            if f.role(user) is Role.ALIAS and not work and f.operations[user].name != "tensor.cast":
                reshapes.add(user)
                stack.append(user)
                continue
            points = _space(f, user) if f.role(user) is Role.ELEMENTWISE else None
            if points is None or domain not in (None, points.extents):
                continue
            domain = points.extents
            work.add(user)
            stack.append(user)
    return work, reshapes
