"""The threads of a block, one after the other between barriers.

    %v = load …(thread)                   for each thread { %v = load …;  store %v, scratch[thread] }
    gpu.barrier                    →      for each thread { %v = load scratch[thread];  … %v … }
    … %v …

Stretches of operations without barriers become loops over the threads. What a later stretch needs of an earlier one
is computed again where that is arithmetic on ids, and else kept in memory with an element for each thread. A loop or
branch that holds barriers stands around the loops over threads, so that its bounds or condition must be the same for
all threads of a block. (The way of work-item loops: Jääskeläinen et al., "pocl: A Performance-Portable OpenCL
Implementation", 2015.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from motet.compiler.frontends.gpu.checks import axis_of, constant
from motet.compiler.frontends.gpu.kernels import within
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.remap import remap
from motet.errors import CompileError

_COLLECTIVE = ("gpu.barrier", "gpu.all_reduce")
_VIEWS = (
    "memref.cast", "memref.memory_space_cast", "memref.subview", "memref.expand_shape", "memref.collapse_shape",
)  # fmt: skip
# gpu.all_reduce's operations: what combines two values, of integers and of floating-point numbers.
_REDUCTIONS = {
    "add": ("arith.addi", "arith.addf"), "mul": ("arith.muli", "arith.mulf"), "and": ("arith.andi", ""),
    "or": ("arith.ori", ""), "xor": ("arith.xori", ""), "minsi": ("arith.minsi", ""), "maxsi": ("arith.maxsi", ""),
    "minui": ("arith.minui", ""), "maxui": ("arith.maxui", ""), "minnumf": ("", "arith.minnumf"),
    "maxnumf": ("", "arith.maxnumf"), "minimumf": ("", "arith.minimumf"), "maximumf": ("", "arith.maximumf"),
}  # fmt: skip


@dataclass(frozen=True)
class _Uniform:
    """The same value for all threads of a block."""

    value: ir.Value


@dataclass(frozen=True)
class _Thread:
    """The number of the thread in this axis."""

    axis: int


@dataclass(frozen=True)
class _Kept:
    """An element for each thread in `memory`; for a memref, a part of it."""

    memory: ir.Value


@dataclass(frozen=True)
class _Again:
    """Computed by this operation wherever it is needed."""

    operation: ir.Operation


_Known = _Uniform | _Thread | _Kept | _Again


@dataclass
class _Scope:
    """Values within one turn of a loop over the threads, whose counters in x, y and z are `ids`; operations go before
    `end`."""

    ids: list[ir.Value]
    end: ir.Operation
    values: dict[ir.Value, ir.Value] = field(default_factory=dict[ir.Value, ir.Value])


class Threads:
    """Runs a kernel's block for the threads of one block. `sizes` are those of the block in x, y and z; new
    operations go before `at`."""

    def __init__(self, sizes: Sequence[ir.Value], at: ir.Operation) -> None:
        self.sizes = list(sizes)
        self.at = at
        self.known: dict[ir.Value, _Known] = {}

    def run(self, block: ir.Block, known: Mapping[ir.Value, ir.Value], private: Sequence[ir.Value]) -> None:
        """`known` are values that are the same for all threads; `private` are arguments that are memory of each
        thread's own."""
        self.known.update({value: _Uniform(here) for value, here in known.items()})
        operations = [entry.operation for entry in block.operations][:-1]
        for operation in operations:
            if operation.name == "gpu.thread_id":
                self.known[operation.results[0]] = _Thread(axis_of(operation))
        local = [op.results[0] for op in operations if op.name == "memref.alloca"]
        if any(map(_is_collective, operations)):
            for memory in (*private, *local):
                self.known[memory] = _Kept(self._scratch(ir.MemRefType(memory.type), memory.location))
        else:
            for memory in private:
                self.known[memory] = _Again(_alloca(memory, self.at))
        self._sequence([op for op in operations if not len(op.results) or op.results[0] not in self.known])
        for memory in private:
            known_memory = self.known[memory]
            if isinstance(known_memory, _Again):
                known_memory.operation.erase()

    # -- stretches -------------------------------------------------------------------------------

    def _sequence(self, operations: Sequence[ir.Operation]) -> None:
        stretch: list[ir.Operation] = []
        for operation in operations:
            if _is_collective(operation):
                self._stretch(stretch)
                stretch = []
                self._collective(operation)
            else:
                stretch.append(operation)
        self._stretch(stretch)

    def _stretch(self, operations: Sequence[ir.Operation]) -> None:
        """A loop over the threads for `operations`, which hold no barriers."""
        needed = [op for op in operations if not self._can_do_again(op)]
        for operation in operations:
            if not any(operation == other for other in needed):
                self.known[operation.results[0]] = _Again(operation)
        if not needed:
            return
        inside = {result for operation in needed for result in operation.results}
        kept = {
            result: self._scratch(result.type, operation.location)
            for operation in needed for result in operation.results if _is_used_outside(result, needed)
        }

        def body(scope: _Scope) -> None:
            for operation in needed:
                self._clone(operation, scope)
                for result in operation.results:
                    if result in kept:
                        self._keep(scope.values[result], kept[result], scope)

        self._over_threads(body, needed[0].location)
        for value in inside:
            if value in kept:
                self.known[value] = _Kept(kept[value])

    def _can_do_again(self, operation: ir.Operation) -> bool:
        """Arithmetic on what is known, free of effects: on ids, sizes and arguments, not on memory."""
        if len(operation.regions) or len(operation.results) != 1:
            return False
        if not operation.name.startswith("arith.") and operation.name not in _VIEWS:
            return False
        return all(self._is_plain(operand) for operand in operation.operands)

    def _is_plain(self, value: ir.Value) -> bool:
        if value in self.known:
            known = self.known[value]
            return not isinstance(known, _Kept) or isinstance(value.type, ir.MemRefType)
        return not isinstance(value.owner, ir.Block) and self._can_do_again(value.owner.operation)

    # -- one thread ------------------------------------------------------------------------------

    def _over_threads(self, body: Callable[[_Scope], None], location: ir.Location) -> None:
        at, ids = self.at, list[ir.Value]()
        for size in self.sizes[::-1]:
            at, counter = loop(size, at, location)
            ids.insert(0, counter)
        body(_Scope(ids, at))

    def _value(self, value: ir.Value, scope: _Scope) -> ir.Value:
        """What `value` of the kernel is for the thread of `scope`."""
        if value not in scope.values:
            known = self.known.get(value)
            if known is None:
                raise CompileError("a value of a kernel from outside of it", locate(value.location))
            if isinstance(known, _Uniform):
                return known.value
            if isinstance(known, _Thread):
                return scope.ids[known.axis]
            if isinstance(known, _Again):
                self._clone(known.operation, scope, value)
            else:
                scope.values[value] = self._of_thread(known.memory, value, scope)
        return scope.values[value]

    def _of_thread(self, memory: ir.Value, value: ir.Value, scope: _Scope) -> ir.Value:
        places = scope.ids[::-1]
        if not isinstance(value.type, ir.MemRefType):
            return create("memref.load", [value.type], [memory, *places], scope.end).result
        shape = ir.MemRefType(value.type).shape
        dynamic = ir.ShapedType.get_dynamic_size()
        attributes = {
            "static_offsets": ir.DenseI64ArrayAttr.get([dynamic] * 3 + [0] * len(shape)),
            "static_sizes": ir.DenseI64ArrayAttr.get([1, 1, 1, *shape]),
            "static_strides": ir.DenseI64ArrayAttr.get([1] * (3 + len(shape))),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 3, 0, 0]),
        }
        strides = [1] * len(shape)
        for axis in range(len(shape) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * shape[axis + 1]
        layout = ir.StridedLayoutAttr.get(dynamic, strides)
        kind = ir.MemRefType.get(shape, ir.MemRefType(value.type).element_type, layout)
        return create("memref.subview", [kind], [memory, *places], scope.end, attributes).result

    def _clone(self, operation: ir.Operation, scope: _Scope, result: ir.Value | None = None) -> None:
        captured = {value: self._value(value, scope) for value in _captured(operation)}
        with ir.InsertionPoint(scope.end):
            copy = operation.clone()
        remap(copy, captured)
        results = [result] if result is not None else list(operation.results)
        scope.values.update(zip(results, copy.results, strict=True))

    def _scratch(self, kind: ir.Type, location: ir.Location) -> ir.Value:
        """Memory with an element, or with a memref's elements, for each thread of a block: [z, y, x, …]."""
        memref = ir.MemRefType(kind) if isinstance(kind, ir.MemRefType) else None
        if memref is not None and not memref.has_static_shape:
            raise CompileError(f"{kind}: memory of this type is not kept across a barrier", locate(location))
        sizes = [constant(size) for size in self.sizes[::-1]]
        dynamic = ir.ShapedType.get_dynamic_size()
        shape = [*(dynamic if size is None else size for size in sizes), *(memref.shape if memref is not None else [])]
        element = memref.element_type if memref is not None else kind
        operands = [value for value, size in zip(self.sizes[::-1], sizes, strict=True) if size is None]
        attributes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0])}
        return create("memref.alloc", [ir.MemRefType.get(shape, element)], operands, self.at, attributes).result

    def _keep(self, value: ir.Value, memory: ir.Value, scope: _Scope) -> None:
        create("memref.store", [], [value, memory, *scope.ids[::-1]], scope.end)

    # -- what all threads do together ------------------------------------------------------------

    def _collective(self, operation: ir.Operation) -> None:
        if operation.name == "gpu.barrier":
            return
        if operation.name == "gpu.all_reduce":
            self._all_reduce(operation)
        elif operation.name == "scf.for":
            self._for(operation)
        elif operation.name == "scf.if":
            self._if(operation)
        else:
            raise CompileError(
                f"{operation.name}: a barrier in this operation is not supported; expected it in scf.for, scf.if or in "
                "none", locate(operation.location),
            )

    def _uniform(self, value: ir.Value, user: ir.Operation) -> ir.Value:
        """`value` before the loops over threads. Raises CompileError where it is not the same for all."""
        known = self.known.get(value)
        if isinstance(known, _Uniform):
            return known.value
        if isinstance(known, _Again):
            captured = {operand: self._uniform(operand, user) for operand in known.operation.operands}
            with ir.InsertionPoint(self.at):
                copy = known.operation.clone()
            remap(copy, captured)
            self.known[value] = _Uniform(copy.results[0])
            return copy.results[0]
        raise CompileError(
            f"{user.name}: threads of a block may differ in whether they reach the barrier in it; expected bounds and "
            "conditions that are computed from constants, arguments and the ids of blocks",
            locate(user.location),
        )

    def _all_reduce(self, operation: ir.Operation) -> None:
        match = next((n for n in _REDUCTIONS if f"all_reduce_op {n}>" in str(operation.attributes["op"])), None) \
            if "op" in operation.attributes else None  # fmt: skip
        kind = operation.results[0].type
        name = _REDUCTIONS[match][not isinstance(kind, (ir.IntegerType, ir.IndexType))] if match else ""
        if not name:
            raise CompileError(
                "gpu.all_reduce: this way to combine values is not supported; expected one of "
                + ", ".join(_REDUCTIONS), locate(operation.location),
            )  # fmt: skip
        memory = create("memref.alloc", [ir.MemRefType.get([1], kind)], [], self.at, {
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}).result  # fmt: skip
        start = _index(0, self.at)

        def body(scope: _Scope) -> None:
            value = self._value(operation.operands[0], scope)
            before = create("memref.load", [kind], [memory, start], scope.end).result
            combined = create(name, [kind], [before, value], scope.end).result
            first = create("arith.ori", [scope.ids[0].type], [scope.ids[0], scope.ids[1]], scope.end).result
            first = create("arith.ori", [first.type], [first, scope.ids[2]], scope.end).result
            is_first = create("arith.cmpi", [ir.IntegerType.get_signless(1)], [first, start], scope.end, {
                "predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)}).result  # fmt: skip
            chosen = create("arith.select", [kind], [is_first, value, combined], scope.end).result
            create("memref.store", [], [chosen, memory, start], scope.end)

        self._over_threads(body, operation.location)
        loaded = create("memref.load", [kind], [memory, start], self.at).result
        self.known[operation.results[0]] = _Uniform(loaded)

    def _for(self, operation: ir.Operation) -> None:
        bounds = [self._uniform(operand, operation) for operand in list(operation.operands)[:3]]
        memories = [self._scratch(result.type, operation.location) for result in operation.results]
        self._hand_on(list(operation.operands)[3:], memories, operation)
        new = create("scf.for", [], bounds, self.at, regions=1)
        block = new.regions[0].blocks.append(bounds[0].type, arg_locs=[operation.location])
        outer, self.at = self.at, ir.Operation.create("scf.yield", loc=operation.location, ip=ir.InsertionPoint(block))
        body = operation.regions[0].blocks[0]
        self.known[body.arguments[0]] = _Uniform(block.arguments[0])
        self.known.update({a: _Kept(m) for a, m in zip(list(body.arguments)[1:], memories, strict=True)})
        *operations, last = [entry.operation for entry in body.operations]
        self._sequence(operations)
        self._hand_on(last.operands, memories, operation)
        self.at = outer
        self.known.update({r: _Kept(m) for r, m in zip(operation.results, memories, strict=True)})

    def _if(self, operation: ir.Operation) -> None:
        condition = self._uniform(operation.operands[0], operation)
        memories = [self._scratch(result.type, operation.location) for result in operation.results]
        new = create("scf.if", [], [condition], self.at, regions=2)
        outer = self.at
        for region, target in zip(operation.regions, new.regions, strict=True):
            for source in region.blocks:
                block = target.blocks.append()
                self.at = ir.Operation.create("scf.yield", loc=operation.location, ip=ir.InsertionPoint(block))
                *operations, last = [entry.operation for entry in source.operations]
                self._sequence(operations)
                self._hand_on(last.operands, memories, operation)
        self.at = outer
        self.known.update({r: _Kept(m) for r, m in zip(operation.results, memories, strict=True)})

    def _hand_on(self, values: Sequence[ir.Value], memories: Sequence[ir.Value], user: ir.Operation) -> None:
        """Every thread writes its `values` to its elements of `memories`, having read all before."""
        if not memories:
            return

        def body(scope: _Scope) -> None:
            read = [self._value(value, scope) for value in values]
            for value, memory in zip(read, memories, strict=True):
                self._keep(value, memory, scope)

        self._over_threads(body, user.location)


def loop(extent: ir.Value, at: ir.Operation, location: ir.Location) -> tuple[ir.Operation, ir.Value]:
    """A loop from 0 to `extent` before `at`: the end of its body, and its counter. None at all for extent 1."""
    if constant(extent) == 1:
        return at, _index(0, at)
    zero, one = _index(0, at), _index(1, at)
    operation = ir.Operation.create(
        "scf.for", operands=[zero, extent, one], regions=1, loc=location, ip=ir.InsertionPoint(at)
    )
    block = operation.regions[0].blocks.append(ir.IndexType.get(), arg_locs=[location])
    return ir.Operation.create("scf.yield", loc=location, ip=ir.InsertionPoint(block)), block.arguments[0]


def create(
    name: str, results: Sequence[ir.Type], operands: Sequence[ir.Value], at: ir.Operation,
    attributes: dict[str, ir.Attribute] | None = None, regions: int = 0,
) -> ir.Operation:
    """A new operation before `at`."""
    return ir.Operation.create(
        name, results=list(results), operands=list(operands), attributes=attributes or {}, regions=regions,
        loc=at.location, ip=ir.InsertionPoint(at),
    )


def _index(number: int, at: ir.Operation) -> ir.Value:
    index = ir.IndexType.get()
    return create("arith.constant", [index], [], at, {"value": ir.IntegerAttr.get(index, number)}).result


def _alloca(memory: ir.Value, at: ir.Operation) -> ir.Operation:
    attributes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}
    return create("memref.alloca", [memory.type], [], at, attributes)


def _is_collective(operation: ir.Operation) -> bool:
    return operation.name in _COLLECTIVE or any(inner.name in _COLLECTIVE for inner in within(operation))


def _is_used_outside(value: ir.Value, operations: Sequence[ir.Operation]) -> bool:
    """Whether an operation that is none of `operations`, nor in one of them, uses `value`."""
    for use in value.uses:
        owner: ir.Operation | None = use.owner.operation
        while owner is not None and not any(owner == operation for operation in operations):
            parent = owner.parent
            owner = None if parent is None else parent.operation
        if owner is None:
            return True
    return False


def _captured(operation: ir.Operation) -> list[ir.Value]:
    """What `operation` and its regions use from outside of it."""
    made: list[ir.Value] = []
    used: list[ir.Value] = list(operation.operands)
    for inner in within(operation):
        used += inner.operands
        made += inner.results
        for region in inner.regions:
            for block in region.blocks:
                made += block.arguments
    for region in operation.regions:
        for block in region.blocks:
            made += block.arguments
    inside = set(made)
    return [value for value in dict.fromkeys(used) if value not in inside]
