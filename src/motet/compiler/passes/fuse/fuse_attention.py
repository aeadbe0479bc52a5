"""fuse-attention: rewrites two products with a softmax between them so that they can be one kernel.

    %s = linalg.generic … (batch_matmul on 12x128x64)           operations marked `motet.attention = 0`, on the
    %t = tensor.expand_shape %s …                          →    extents that all reshapes between them have in
    … softmax of %t …                                           common (1x12, 128, 64), without reshapes between
    %u = tensor.collapse_shape … ; batch_matmul with %v         them: these are before and after

All operations between the products that depend on the first one are included, as are masks computed from positions,
factors of queries and keys, reshapes and transpositions of operands, and a transposition of the result. A triangular
constant mask becomes a comparison of positions. The pass leaves the program unchanged if a part is also used
elsewhere, or if `accepts` refuses the resulting kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.kernels.attention.matching import is_attention
from motet.compiler.kernels.compose import compose
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.reader.function_reader import read_kernel
from motet.compiler.kernels.reader.reading import Unreadable
from motet.compiler.kernels.roles import Role, structure_of
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.candidates import Candidate, FunctionView
from motet.compiler.passes.fuse.reshape_common_shape import NoRefinement, inward, outward
from motet.compiler.passes.fuse.rewrite_candidate import CandidateBuilder

_LARGEST = 64  # operations of one attention

Accepts = Callable[[Kernel], bool]


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Fuses the attention that `accepts` accepts."""

    name = "fuse-attention"
    accepts: Accepts = is_attention

    def run(self, program: Program) -> bool:
        found = False
        for function in public_functions(program.module):
            fused = [any(_rewrite(one, self.accepts) for one in ways) for ways in _candidates(function, program)]
            if any(fused):
                found = True
                erase_unused(function)
        return found


# -- matching --------------------------------------------------------------------------------------


def _candidates(function: ir.Operation, program: Program) -> list[list[Candidate]]:
    """The candidates for attention, each with its alternatives, the best first."""
    f = FunctionView(function, program)
    products = [
        position for position, operation in enumerate(f.operations)
        if operation.name == "linalg.generic" and f.role(position) is Role.CONTRACTION
    ]
    found: list[list[Candidate]] = []
    taken: set[int] = set()
    for second in products:
        for side in f.inputs(second):
            first, inner = _between(f, second, side)
            if first is None or taken & {first, second, *inner}:
                continue
            both = [_gathered(f, first, inner, second, len(found), slices) for slices in (True, False)]
            ways = [candidate for candidate in both if candidate is not None]
            if ways:
                found.append(ways)
                taken |= {first, second, *inner}
                break
    return found


def _between(f: FunctionView, second: int, side: ir.Value) -> tuple[int | None, set[int]]:
    """The single product that `side` of product `second` depends on, and the operations between them."""
    readers: dict[int, set[int]] = {}
    stack = [(side, second)]
    contractions: set[int] = set()
    while stack:
        value, reader = stack.pop()
        position = f.maker(value)
        if position is None:
            continue
        known = position in readers
        readers.setdefault(position, set()).add(reader)
        role = f.role(position)
        if known or len(readers) > _LARGEST:
            continue
        if role is Role.CONTRACTION:
            contractions.add(position)
        elif role in (Role.ELEMENTWISE, Role.REDUCTION, Role.VIEW, Role.ALIAS):
            stack += [(operand, position) for operand in f.inputs(position)]
    for first in sorted(contractions):
        inner: set[int] = set()
        todo = list(readers[first])
        while todo:
            position = todo.pop()
            if position not in inner and position != second:
                inner.add(position)
                todo += readers[position]
        own = {first, *inner}
        if not inner & contractions and _is_softmax(f, inner) and all(f.users(p) <= {*own, second} for p in own):
            return first, inner
    return None, set()


def _is_softmax(f: FunctionView, inner: set[int]) -> bool:
    """Whether these operations may be a softmax: an exponential and a reduction."""
    names = {
        child.operation.name
        for p in inner if f.operations[p].name == "linalg.generic"
        for child in f.operations[p].regions[0].blocks[0].operations
    }
    return "math.exp" in names and any(f.role(p) is Role.REDUCTION for p in inner)


def _gathered(
    f: FunctionView, first: int, inner: set[int], second: int, number: int, slices: bool
) -> Candidate | None:
    """The attention with the producers of its operands and the users of its result that it includes; with `slices`,
    also slices of its operands."""
    members = {first, second, *inner}
    outer: set[int] = set()
    factors = [(value, True) for value in f.inputs(first)]
    stack = [*factors, *((value, False) for position in members - {first} for value in f.inputs(position))]
    while stack:
        value, is_factor = stack.pop()
        position = f.maker(value)
        if position is None or position in members | outer:
            continue
        if not _is_cheap(f, position, slices) and not (is_factor and _is_scaling(f, position)):
            continue
        outer.add(position)
        stack += [(operand, is_factor) for operand in f.inputs(position)]
    after = _after(f, second)
    order = sorted(members | outer) + [p for p in after if p not in members]
    if len(order) > _LARGEST:
        return None
    return f.candidate(order, number, triangles=True)


def _is_cheap(f: FunctionView, position: int, slices: bool) -> bool:
    """Whether an operation with other readers is duplicated: renamings, and operations that only depend on
    positions."""
    operation, role = f.operations[position], f.role(position)
    if role is Role.ALIAS:
        return operation.name != "tensor.cast"
    if role is Role.VIEW:
        return operation.name == "linalg.generic" or (slices and _is_known_slice(operation))
    if operation.name == "tensor.concat":  # read in parts, unless it is stored in memory anyway
        return slices and operation.results[0].type.has_static_shape and len(list(operation.results[0].uses)) == 1
    if role is not Role.ELEMENTWISE:
        return False
    return all(
        f.number(value) is not None or f.triangle(value) is not None
        or ((maker := f.maker(value)) is not None and _is_cheap(f, maker, slices) and _from_positions(f, maker))
        for value in f.inputs(position)
    )


def _is_scaling(f: FunctionView, position: int) -> bool:
    """Whether an operation multiplies or divides a tensor by a number: queries and keys are often scaled one by one."""
    operation = f.operations[position]
    if f.role(position) is not Role.ELEMENTWISE or operation.name != "linalg.generic":
        return False
    names = [child.operation.name for child in operation.regions[0].blocks[0].operations]
    return names in (["arith.mulf", "linalg.yield"], ["arith.divf", "linalg.yield"]) and sum(
        f.number(value) is None for value in f.inputs(position)
    ) == 1


def _is_known_slice(operation: ir.Operation) -> bool:
    unknown = ir.ShapedType.get_dynamic_size()
    return operation.name == "tensor.extract_slice" and unknown not in list(
        ir.DenseI64ArrayAttr(operation.attributes["static_sizes"])
    )


def _from_positions(f: FunctionView, position: int) -> bool:
    """Whether an operation's operands, looking through renamings, only depend on positions."""
    if f.role(position) is Role.ELEMENTWISE:
        return True
    return all(
        f.triangle(value) is not None or ((maker := f.maker(value)) is not None and _from_positions(f, maker))
        for value in f.inputs(position)
    )


def _after(f: FunctionView, second: int) -> list[int]:
    """Casts and transpositions of the result, with the reshapes between them."""
    found: list[int] = []
    pending: list[int] = []
    position = second
    while True:
        users = f.users(position)
        uses = [use for result in f.operations[position].results for use in result.uses]
        position = next(iter(users), -1)
        if len(uses) != 1 or position < 0:
            return found
        role = f.role(position)
        operation = f.operations[position]
        if role is Role.ALIAS and operation.name != "tensor.cast":
            pending.append(position)
        elif (role is Role.VIEW and _is_transposition(operation)) or _is_cast(operation, role):
            found += [*pending, position]
            pending = []
        else:
            return found


def _is_transposition(operation: ir.Operation) -> bool:
    structure = structure_of(operation) if operation.name == "linalg.generic" else None
    if structure is None:
        return False
    read, written = ({e.single for e in map_ if e.single is not None} for map_ in structure.maps)
    return read == written


def _is_cast(operation: ir.Operation, role: Role) -> bool:
    if role is not Role.ELEMENTWISE or len(operation.operands) != 2:
        return False
    names = [child.operation.name for child in operation.regions[0].blocks[0].operations]
    return names in (["arith.truncf", "linalg.yield"], ["arith.extf", "linalg.yield"])


# -- rewriting -------------------------------------------------------------------------------------


def _rewrite(candidate: Candidate, accepts: Accepts) -> bool:
    """Replaces `candidate`'s operations by the attention; returns whether they are one."""
    last = candidate.operations[-1]
    try:
        builder = CandidateBuilder(candidate)
        if not _is_accepted(builder, accepts):
            return False
        with ir.InsertionPoint(last), last.location:
            inputs = [inward(value, builder.tensor(key)) for key, value in builder.outside()]
            replacement = outward(builder.build(inputs, candidate.number), builder.result())
    except NoRefinement:  # operations inserted so far have no uses
        return False
    last.results[0].replace_all_uses_with(replacement)
    return True


def _is_accepted(builder: CandidateBuilder, accepts: Accepts) -> bool:
    """Whether the resulting kernel is accepted as attention; it is built in a separate function."""
    last = builder.candidate.operations[-1]
    scratch = ir.Module.create(last.location)
    kinds = [builder.tensor(key).kind for key, _ in builder.outside()]
    with last.location:
        result = builder.result().kind
        function = func.FuncOp(
            "attention", ir.FunctionType.get(kinds, [result]), ip=ir.InsertionPoint(scratch.body)
        )
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp([builder.build(list(block.arguments), 0)])
    try:
        return accepts(compose(read_kernel(function.operation)))
    except Unreadable:
        return False
