"""fuse-attention: two products with a softmax between them, rewritten so that they can be one kernel.

    %s = linalg.generic … (batch_matmul on 12x128x64)           operations marked `motet.attention = 0`, on the
    %t = tensor.expand_shape %s …                          →    extents that all reshapes between them have in
    … softmax of %t …                                           common (1x12, 128, 64), and no reshape between
    %u = tensor.collapse_shape … ; batch_matmul with %v         them: those stand before and after

Everything between the products that depends on the first one belongs to it, masks made of positions, reshapes and
transpositions of what is read, and a transposition of the result. A constant mask that is triangular becomes a
comparison of positions. Nothing happens where a part is also used elsewhere, or where `accepts` refuses the kernel that
it would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from motet.compiler.codegen.compose import compose
from motet.compiler.codegen.kernel import Kernel
from motet.compiler.codegen.reader import read_kernel
from motet.compiler.codegen.reading import Unreadable
from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.attributes import constant_number, reassociation
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import PARAMETER, Program
from motet.compiler.partition.group import MARK
from motet.compiler.partition.refining import Axis, Extents, NoRefinement, Reshape, Slice, Tensor, inward, outward
from motet.compiler.partition.roles import Role, role_of, structure_of

_LARGEST = 64  # operations of one

Accepts = Callable[[Kernel], bool]


def fuse_attention(program: Program, accepts: Accepts) -> bool:
    """In place, in every public function; whether there was any attention that `accepts` takes."""
    found = False
    for function in public_functions(program.module):
        fused = [any(_rewrite(one, accepts) for one in ways) for ways in _candidates(function, program)]
        if any(fused):
            found = True
            erase_unused(function)
    return found


# -- finding ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Triangle:
    """A constant of two values, the first where column <= row + `offset`; rows and columns are its last axes."""

    first: float | int
    second: float | int
    offset: int
    rows: int
    columns: int


@dataclass(frozen=True)
class Source:
    """Where an operand comes from: result `result` of operation `node` of the attention, a number, a triangular
    constant; else from outside."""

    node: int = -1
    result: int = 0
    number: float | int | None = None
    triangle: Triangle | None = None


@dataclass
class Candidate:
    """`operations` in the order of the program, the last one making the result. Those in `inner` depend on the first
    product, and are nobody else's."""

    function: ir.Operation
    number: int
    operations: list[ir.Operation]
    sources: list[list[Source]]
    inner: list[bool]


class FunctionView:
    """What is asked of a function's operations before anything changes."""

    def __init__(self, function: ir.Operation, program: Program) -> None:
        self.function = function
        self.program = program
        block = function.regions[0].blocks[0]
        self.operations = [entry.operation for entry in block.operations]
        self.position = {operation: i for i, operation in enumerate(self.operations)}
        self.roles: dict[int, Role] = {}

    def role(self, position: int) -> Role:
        if position not in self.roles:
            self.roles[position] = role_of(self.operations[position])
        return self.roles[position]

    def maker(self, value: ir.Value) -> int | None:
        """The position of the operation that makes `value`."""
        return None if isinstance(value.owner, ir.Block) else self.position.get(value.owner.operation)

    def inputs(self, position: int) -> list[ir.Value]:
        """What an operation reads, its accumulators left out."""
        operation = self.operations[position]
        operands = list(operation.operands)
        if operation.name == "linalg.generic":
            return operands[: next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))]
        return operands if operation.name == "tensor.concat" else operands[:1]

    def users(self, position: int) -> set[int]:
        return {
            self.position.get(use.owner.operation, -1)
            for result in self.operations[position].results for use in result.uses
        }

    def number(self, value: ir.Value) -> float | int | None:
        """The number that all of a tensor, or a scalar, is."""
        return _constant(value)

    def candidate(
        self, order: Sequence[int], number: int, inner: Sequence[bool] = (), triangles: bool = False
    ) -> Candidate:
        """The operations at `order`; `triangles` says whether triangular constants are looked for."""
        index = {position: i for i, position in enumerate(order)}

        def source(value: ir.Value) -> Source:
            maker = self.maker(value)
            if maker in index:
                return Source(index[maker], ir.OpResult(value).result_number)
            known = self.number(value)
            return Source(number=known, triangle=self.triangle(value) if triangles and known is None else None)

        return Candidate(
            self.function, number, [self.operations[p] for p in order],
            [[source(value) for value in self.inputs(p)] for p in order], list(inner),
        )

    def triangle(self, value: ir.Value) -> Triangle | None:
        if not isinstance(value.owner, ir.Block) or "arg_attrs" not in self.function.attributes:
            return None
        argument = ir.BlockArgument(value).arg_number
        attributes = ir.DictAttr(ir.ArrayAttr(self.function.attributes["arg_attrs"])[argument])
        if PARAMETER not in attributes:
            return None
        return triangular(self.program.parameters[ir.StringAttr(attributes[PARAMETER]).value])


def triangular(array: np.ndarray) -> Triangle | None:
    """What `array` is, if it holds one value up to a diagonal and another one behind it."""
    if array.ndim < 2 or array.dtype.kind in "iuc" or min(array.shape[-2:]) < 2:
        return None
    if array.size != np.prod(array.shape[-2:]):
        return None
    flat = array.reshape(array.shape[-2:])
    first, second = flat[-1, 0], flat[0, -1]
    seen = flat[0] == first
    offset = int(seen.sum()) - 1
    if not np.array_equal(flat, np.where(np.tri(*flat.shape, offset, dtype=bool), first, second)) or first == second:
        return None
    rows, columns = array.shape[-2], array.shape[-1]
    return Triangle(first.item(), second.item(), offset, rows, columns)


def _candidates(function: ir.Operation, program: Program) -> list[list[Candidate]]:
    """What may be attention, each in the ways in which it may be taken, the best first."""
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
    """The one product that `side` of product `second` is made from, and what lies between them."""
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
    """Whether these may be one: some reduction, and a power."""
    names = {
        child.operation.name
        for p in inner if f.operations[p].name == "linalg.generic"
        for child in f.operations[p].regions[0].blocks[0].operations
    }
    return "math.exp" in names and any(f.role(p) is Role.REDUCTION for p in inner)


def _gathered(
    f: FunctionView, first: int, inner: set[int], second: int, number: int, slices: bool
) -> Candidate | None:
    """The attention with what its operands are made of and what is done with its result; slices of what it reads are
    its own where `slices`."""
    members = {first, second, *inner}
    outer: set[int] = set()
    stack = [value for position in members for value in f.inputs(position)]
    while stack:
        position = f.maker(stack.pop())
        if position is None or position in members | outer or not _is_cheap(f, position, slices):
            continue
        outer.add(position)
        stack += f.inputs(position)
    after = _after(f, second)
    order = sorted(members | outer) + [p for p in after if p not in members]
    if len(order) > _LARGEST:
        return None

    return f.candidate(order, number, [p in members or p in after for p in order], triangles=True)


def _is_cheap(f: FunctionView, position: int, slices: bool) -> bool:
    """Whether an operation that others may need as well is done again for each: renamings, and what follows from
    positions alone."""
    operation, role = f.operations[position], f.role(position)
    if role is Role.ALIAS:
        return operation.name != "tensor.cast"
    if role is Role.VIEW:
        return operation.name == "linalg.generic" or (slices and _is_known_slice(operation))
    if operation.name == "tensor.concat":  # read in pieces, but only where it is not made in memory anyway
        return slices and operation.results[0].type.has_static_shape and len(list(operation.results[0].uses)) == 1
    if role is not Role.ELEMENTWISE:
        return False
    return all(
        f.number(value) is not None or f.triangle(value) is not None
        or ((maker := f.maker(value)) is not None and _is_cheap(f, maker, slices) and _from_positions(f, maker))
        for value in f.inputs(position)
    )


def _is_known_slice(operation: ir.Operation) -> bool:
    unknown = ir.ShapedType.get_dynamic_size()
    return operation.name == "tensor.extract_slice" and unknown not in list(
        ir.DenseI64ArrayAttr(operation.attributes["static_sizes"])
    )


def _from_positions(f: FunctionView, position: int) -> bool:
    """Whether renamings lead back to nothing from outside."""
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
    """Put the attention in place of `candidate`'s operations, if it is one."""
    last = candidate.operations[-1]
    try:
        builder = CandidateBuilder(candidate)
        if not _is_accepted(builder, accepts):
            return False
    except NoRefinement:
        return False
    result = last.results[0]
    with ir.InsertionPoint(last), last.location:
        inputs = [inward(value, builder.tensor(key)) for key, value in builder.outside()]
        replacement = outward(builder.build(inputs, candidate.number), builder.result())
    result.replace_all_uses_with(replacement)
    return True


def erase_unused(function: ir.Operation) -> None:
    """Erase what nobody reads any more."""
    for entry in reversed(list(function.regions[0].blocks[0].operations)):
        operation = entry.operation
        pure = operation.name.startswith(("arith.", "tensor.", "linalg.", "math.", "affine."))
        if pure and not any(True for result in operation.results for _ in result.uses):
            operation.erase()


def _is_accepted(builder: CandidateBuilder, accepts: Accepts) -> bool:
    """Whether the kernel that there would be is attention, by building it aside."""
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


Key = tuple[int, int]  # an operation, and which of its operands


@dataclass
class CandidateBuilder:
    """Builds the operations of a candidate on refined extents, wherever it is told to."""

    candidate: Candidate
    extents: Extents = field(default_factory=Extents)

    def __post_init__(self) -> None:
        for number, operation in enumerate(self.candidate.operations):
            self._declare(number, operation)
        self.extents.settle()

    def _names(self, number: int) -> list[str]:
        """What the extents of each operand are called."""
        return [
            f"r{source.node}.{source.result}" if source.node >= 0 else f"b{number}.{k}"
            for k, source in enumerate(self.candidate.sources[number])
        ]

    def _declare(self, number: int, operation: ir.Operation) -> None:
        e = self.extents
        names = self._names(number)
        for k, name in enumerate(names):
            if name not in e.tensors and isinstance(operation.operands[k].type, ir.RankedTensorType):
                e.declare(name, ir.RankedTensorType(operation.operands[k].type))
        for k, result in enumerate(operation.results):
            e.declare(f"r{number}.{k}", ir.RankedTensorType(result.type))
        if operation.name == "linalg.generic":
            self._declare_loops(number, operation, names)
        elif operation.name == "tensor.concat":
            e.concatenate(f"r{number}.0", names, ir.IntegerAttr(operation.attributes["dim"]).value)
        elif operation.name == "tensor.extract_slice":
            e.slices.append(Slice(names[0], f"r{number}.0", operation))
        else:
            wide, narrow = f"r{number}.0", names[0]
            if operation.name == "tensor.collapse_shape":
                wide, narrow = narrow, wide
            e.reshapes.append(Reshape(wide, narrow, reassociation(operation)))

    def _declare_loops(self, number: int, operation: ir.Operation, names: list[str]) -> None:
        structure = structure_of(operation)
        if structure is None or any(structure.sizes[d] == 1 for d in structure.reduced):
            raise NoRefinement
        loops = self.extents.loops(f"d{number}", structure.sizes)
        results = [f"r{number}.{k}" for k in range(len(operation.results))]
        for name, operand, map_ in zip([*names, *results], operation.operands, structure.maps, strict=True):
            if not isinstance(operand.type, ir.RankedTensorType):
                continue
            for axis, entry in enumerate(map_):
                if entry.single is not None:
                    self.extents.join(loops, entry.single, name, axis)
                elif not (entry.is_constant and entry.constant == 0):
                    raise NoRefinement

    # -- what comes from outside --

    def outside(self) -> list[tuple[Key, ir.Value]]:
        """The tensors that are read from outside, with where."""
        return [
            ((number, k), operation.operands[k])
            for number, operation in enumerate(self.candidate.operations)
            for k, source in enumerate(self.candidate.sources[number])
            if source.node < 0 and source.number is None and source.triangle is None
        ]

    def tensor(self, key: Key) -> Tensor:
        number, k = key
        operation = self.candidate.operations[number]
        return self.extents.refined(self._names(number)[k], operation.operands[k].type)

    def result(self) -> Tensor:
        last = len(self.candidate.operations) - 1
        return self.extents.refined(f"r{last}.0", self.candidate.operations[last].results[0].type)

    # -- building --

    def build(self, inputs: Sequence[ir.Value], mark: int) -> ir.Value:
        """All operations, at the current insertion point, reading `inputs` for what is `outside`; the result."""
        given = dict(zip([key for key, _ in self.outside()], inputs, strict=True))
        unknown = self._unknown(given)
        made: dict[tuple[int, int], ir.Value] = {}
        for number, operation in enumerate(self.candidate.operations):
            operands: list[ir.Value] = []
            for k, source in enumerate(self.candidate.sources[number]):
                if source.node >= 0:
                    operands.append(made[source.node, source.result])
                elif source.number is not None:
                    operands.append(_scalar(operation.operands[k].type, source.number))
                elif source.triangle is not None:
                    operands.append(self._triangle(self.tensor((number, k)), source.triangle, mark))
                else:
                    operands.append(given[number, k])
            results = self._one(number, operation, operands, unknown, mark)
            made |= {(number, k): value for k, value in enumerate(results)}
        return made[len(self.candidate.operations) - 1, 0]

    def _unknown(self, given: dict[Key, ir.Value]) -> dict[Axis, ir.Value]:
        """The extents that are not known when compiling, taken from what comes from outside: whoever asks a value in
        between for its extents wants it in memory."""
        found: dict[Axis, ir.Value] = {}
        for (number, k), value in given.items():
            operation = self.candidate.operations[number]
            name = self._names(number)[k]
            position = 0
            for axis in range(ir.RankedTensorType(operation.operands[k].type).rank):
                parts = self.extents.parts((name, axis))
                lead = self.extents.lead((name, axis))
                if parts and parts[0] is None and lead not in found:
                    found[lead] = _dim(value, position)
                position += len(parts)
        return found

    def _one(
        self, number: int, operation: ir.Operation, operands: list[ir.Value], unknown: dict[Axis, ir.Value], mark: int
    ) -> list[ir.Value]:
        if operation.name in ("tensor.expand_shape", "tensor.collapse_shape"):
            return operands  # both sides have the same extents now
        if operation.name == "tensor.extract_slice":
            names = self._names(number)
            return [_marked(self.extents.slice(operands[0], operation, names[0], f"r{number}.0"), mark)]
        if operation.name == "tensor.concat":
            axis = ir.IntegerAttr(operation.attributes["dim"]).value
            names = self._names(number)
            parts = [
                _marked(part, mark) if part != operand else part
                for operand, part in zip(operands, self.extents.with_axis(operands, names, axis), strict=True)
            ]
            return [_marked(self.extents.concatenation(parts, f"r{number}.0", axis, operation), mark)]
        return self._generic(number, operation, operands, unknown, mark)

    def _generic(
        self, number: int, operation: ir.Operation, operands: list[ir.Value], unknown: dict[Axis, ir.Value], mark: int
    ) -> list[ir.Value]:
        structure = structure_of(operation)
        if structure is None:
            raise NoRefinement
        loops = self.extents.numbered(f"d{number}")
        count = sum(map(len, loops))
        maps: list[ir.AffineMap] = []
        for operand, map_ in zip([*operands, *operation.results], structure.maps, strict=True):
            entries = [d for entry in map_ if entry.single is not None for d in loops[entry.single]]
            if not isinstance(operand.type, ir.RankedTensorType):
                entries = []
            maps.append(ir.AffineMap.get(count, 0, [ir.AffineDimExpr.get(d) for d in entries]))
        sizes = self._sizes(number, unknown)
        outputs = [
            self._begin(operation.operands[len(operands) + k], maps[len(operands) + k], sizes, result.type)
            for k, result in enumerate(operation.results)
        ]
        kinds = [d in structure.reduced for d, new in enumerate(loops) for _ in new]
        created = ir.Operation.create(
            "linalg.generic", results=[output.type for output in outputs], operands=[*operands, *outputs],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
                "iterator_types": ir.ArrayAttr.get(
                    [ir.Attribute.parse(f"#linalg.iterator_type<{'reduction' if k else 'parallel'}>") for k in kinds]
                ),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), len(outputs)]),
            },
            regions=1,
        )
        copy = operation.clone()
        copy.regions[0].blocks[0].append_to(created.regions[0])
        copy.operation.erase()
        _own_captures(created, loops)
        _marked(created.results[0], mark)
        return list(created.results)

    def _sizes(self, number: int, unknown: dict[Axis, ir.Value]) -> list[int | ir.Value]:
        """The extents of the refined loops; those that are not known as values."""
        name = f"d{number}"
        found: list[int | ir.Value] = []
        for axis in range(len(self.extents.tensors[name])):
            for part in self.extents.parts((name, axis)):
                if part is None and self.extents.lead((name, axis)) not in unknown:
                    raise NoRefinement  # of unknown origin
                found.append(unknown[self.extents.lead((name, axis))] if part is None else part)
        return found

    def _begin(
        self, original: ir.Value, map_: ir.AffineMap, sizes: Sequence[int | ir.Value], kind: ir.Type
    ) -> ir.Value:
        """An accumulator like `original`, on refined extents."""
        element = ir.RankedTensorType(kind).element_type
        extents = [sizes[ir.AffineDimExpr(entry).position] for entry in map_.results]
        unknown = ir.ShapedType.get_dynamic_size()
        shape = [size if isinstance(size, int) else unknown for size in extents]
        empty = ir.Operation.create(
            "tensor.empty", results=[ir.RankedTensorType.get(shape, element)],
            operands=[size for size in extents if not isinstance(size, int)],
        ).results[0]
        number = _constant(original)
        if number is None:
            owner = original.owner
            if isinstance(owner, ir.Block) or owner.operation.name != "tensor.empty":
                raise NoRefinement
            return empty
        identity = ir.AffineMap.get_identity(len(shape))
        maps = [ir.AffineMap.get(len(shape), 0, []), identity]

        def body(block: ir.Block) -> ir.Value:
            return block.arguments[0]

        return _loops([_scalar(element, number)], empty, maps, body)

    def _triangle(self, tensor: Tensor, triangle: Triangle, mark: int) -> ir.Value:
        """The mask as a comparison of positions."""
        kind = tensor.kind
        if list(kind.shape) != [triangle.rows, triangle.columns]:
            raise NoRefinement
        element = kind.element_type
        empty = ir.Operation.create("tensor.empty", results=[kind]).results[0]
        index = ir.IndexType.get()

        def body(block: ir.Block) -> ir.Value:
            row, column = (
                ir.Operation.create("linalg.index", results=[index], attributes={"dim": _i64(d)}).results[0]
                for d in (0, 1)
            )
            shift = ir.Operation.create(
                "arith.constant", results=[index], attributes={"value": ir.IntegerAttr.get(index, triangle.offset)}
            ).results[0]
            last = ir.Operation.create("arith.addi", results=[index], operands=[row, shift]).results[0]
            truth = isinstance(element, ir.IntegerType)
            predicate = 3 if triangle.first or not truth else 4  # sle, sgt
            seen = ir.Operation.create(
                "arith.cmpi", results=[ir.IntegerType.get_signless(1)], operands=[column, last],
                attributes={"predicate": _i64(predicate)},
            ).results[0]
            if truth:
                return seen
            values = [_scalar(element, value) for value in (triangle.first, triangle.second)]
            return ir.Operation.create("arith.select", results=[element], operands=[seen, *values]).results[0]

        made = _loops([], empty, [ir.AffineMap.get_identity(2)], body)
        return _marked(made, mark)


def _marked(value: ir.Value, mark: int) -> ir.Value:
    ir.OpResult(value).owner.attributes[MARK] = _i64(mark)
    return value


def _constant(value: ir.Value) -> float | int | None:
    """The number that a scalar, or all of a tensor, is known to be."""
    if isinstance(value.owner, ir.Block):
        return None
    owner = value.owner.operation
    if owner.name == "arith.constant":
        return constant_number(owner)
    filled = owner.name == "linalg.fill" or (owner.name == "linalg.generic" and role_of(owner) is Role.FREE)
    return _constant(owner.operands[0]) if filled else None


def _i64(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def _scalar(kind: ir.Type, number: float | int) -> ir.Value:
    element = ir.RankedTensorType(kind).element_type if isinstance(kind, ir.RankedTensorType) else kind
    floating = isinstance(element, ir.FloatType)
    value = ir.FloatAttr.get(element, float(number)) if floating else ir.IntegerAttr.get(element, int(number))
    return ir.Operation.create("arith.constant", results=[element], attributes={"value": value}).results[0]


def _dim(value: ir.Value, axis: int) -> ir.Value:
    index = ir.IndexType.get()
    constant = ir.Operation.create(
        "arith.constant", results=[index], attributes={"value": ir.IntegerAttr.get(index, axis)}
    )
    return ir.Operation.create("tensor.dim", results=[index], operands=[value, constant.results[0]]).results[0]


def _loops(
    inputs: list[ir.Value], output: ir.Value, maps: list[ir.AffineMap], body: Callable[[ir.Block], ir.Value]
) -> ir.Value:
    """A parallel nest over `output` whose points are what `body` builds."""
    kind = ir.RankedTensorType(output.type)
    created = ir.Operation.create(
        "linalg.generic", results=[kind], operands=[*inputs, output],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * kind.rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
        },
        regions=1,
    )
    types = [*(value.type for value in inputs), kind.element_type]
    block = ir.Block.create_at_start(created.regions[0], types, [created.location] * len(types))
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[body(block)])
    return created.results[0]


def _own_captures(operation: ir.Operation, loops: Sequence[Sequence[int]]) -> None:
    """Let a body have constants of its own instead of those around it, and the refined loops' positions."""
    block = operation.regions[0].blocks[0]
    inside = set(block.arguments)
    for entry in list(block.operations):
        child = entry.operation
        if child.name == "linalg.index":
            new = loops[ir.IntegerAttr(child.attributes["dim"]).value]
            if len(new) > 1:
                raise NoRefinement
            if new:
                child.attributes["dim"] = _i64(new[0])
            else:
                with ir.InsertionPoint(child):
                    child.results[0].replace_all_uses_with(_scalar(child.results[0].type, 0))
        for k, operand in enumerate(child.operands):
            if operand in inside:
                continue
            number = _constant(operand)
            if number is None:
                raise NoRefinement
            with ir.InsertionPoint(child):
                child.operands[k] = _scalar(operand.type, number)
        inside.update(child.results)
        if child.operands:
            inside.update(child.operands)
