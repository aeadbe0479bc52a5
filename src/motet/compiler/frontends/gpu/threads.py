"""Runs the threads of a block one after the other between barriers.

    %v = load …(thread)                   for each thread { %v = load …;  store %v, scratch[thread] }
    gpu.barrier                    →      for each thread { %v = load scratch[thread];  … %v … }
    … %v …

Sequences of operations without barriers become loops over the threads. Values that a later sequence needs of an earlier
one are recomputed if they are arithmetic on ids, and otherwise stored in memory with an element for each thread. A loop
or branch that contains barriers is placed around the loops over threads; its bounds or condition must be the same for
all threads of a block. Source: the work-item loops of Jääskeläinen et al., "pocl: A Performance-Portable OpenCL
Implementation", 2015.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from motet.compiler.frontends.gpu.checks import axis_of
from motet.compiler.frontends.gpu.host_loops import alloc, alloca, compare, loop, reduce_into
from motet.compiler.frontends.gpu.kernels import SUBGROUP, within
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import integer_constant
from motet.compiler.ir.create import binary, create, index_constant
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.remap import remap
from motet.errors import CompileError

_COLLECTIVE = ("gpu.barrier", "gpu.all_reduce", "gpu.subgroup_reduce", "gpu.shuffle")
_VIEWS = (
    "memref.cast", "memref.memory_space_cast", "memref.subview", "memref.expand_shape", "memref.collapse_shape",
)  # fmt: skip


@dataclass(frozen=True)
class _Uniform:
    """The same value in all threads of a block."""

    value: ir.Value


@dataclass(frozen=True)
class _Thread:
    """The index of the thread along this axis."""

    axis: int


@dataclass(frozen=True)
class _Kept:
    """Stored in `memory`, with an element for each thread; for a memref, a part of it."""

    memory: ir.Value


@dataclass(frozen=True)
class _Recomputed:
    """Recomputed by this operation at each use."""

    operation: ir.Operation


_Known = _Uniform | _Thread | _Kept | _Recomputed


@dataclass
class _Scope:
    """The values of one iteration of a loop over the threads, whose indices in x, y and z are `ids`; operations are
    inserted before `end`."""

    ids: list[ir.Value]
    end: ir.Operation
    values: dict[ir.Value, ir.Value] = field(default_factory=dict[ir.Value, ir.Value])


class Threads:
    """Runs a kernel's block for the threads of one block of the launch. `sizes` are the block's sizes in x, y and z;
    new operations are inserted before `at`."""

    def __init__(self, sizes: Sequence[ir.Value], at: ir.Operation) -> None:
        self.sizes = list(sizes)
        self.at = at
        self.known: dict[ir.Value, _Known] = {}

    def run(self, block: ir.Block, known: Mapping[ir.Value, ir.Value], private: Sequence[ir.Value]) -> None:
        """Converts `block`. `known` are values that are the same in all threads; `private` are arguments that are
        memory of a single thread."""
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
                self.known[memory] = _Recomputed(alloca(memory, self.at))
        self._sequence([op for op in operations if not len(op.results) or op.results[0] not in self.known])
        for memory in private:
            known_memory = self.known[memory]
            if isinstance(known_memory, _Recomputed):
                known_memory.operation.erase()

    # -- sequences -------------------------------------------------------------------------------

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
        """Creates a loop over the threads for `operations`, which contain no barriers."""
        needed = [op for op in operations if not self._can_do_again(op)]
        for operation in operations:
            if not any(operation == other for other in needed):
                self.known[operation.results[0]] = _Recomputed(operation)
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
        """Whether an operation is arithmetic without effects on ids, sizes and arguments, which can be recomputed."""
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
        """The value of the kernel's `value` in the thread of `scope`."""
        if value not in scope.values:
            known = self.known.get(value)
            if known is None:
                raise CompileError("a value of a kernel from outside of it", locate(value.location))
            if isinstance(known, _Uniform):
                return known.value
            if isinstance(known, _Thread):
                return scope.ids[known.axis]
            if isinstance(known, _Recomputed):
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
        captured = {value: self._value(value, scope) for value in dict.fromkeys(captured_values(operation))}
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
        sizes = [integer_constant(size) for size in self.sizes[::-1]]
        dynamic = ir.ShapedType.get_dynamic_size()
        shape = [*(dynamic if size is None else size for size in sizes), *(memref.shape if memref is not None else [])]
        element = memref.element_type if memref is not None else kind
        operands = [value for value, size in zip(self.sizes[::-1], sizes, strict=True) if size is None]
        attributes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0])}
        return create("memref.alloc", [ir.MemRefType.get(shape, element)], operands, self.at, attributes).result

    def _keep(self, value: ir.Value, memory: ir.Value, scope: _Scope) -> None:
        create("memref.store", [], [value, memory, *scope.ids[::-1]], scope.end)

    # -- operations of all threads together ------------------------------------------------------

    def _collective(self, operation: ir.Operation) -> None:
        if operation.name == "gpu.barrier":
            return
        if operation.name == "gpu.all_reduce":
            self._all_reduce(operation)
        elif operation.name == "gpu.subgroup_reduce":
            self._subgroup_reduce(operation)
        elif operation.name == "gpu.shuffle":
            self._shuffle(operation)
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
        """`value`, computed before the loops over threads. Raises CompileError if it differs between threads."""
        known = self.known.get(value)
        if isinstance(known, _Uniform):
            return known.value
        if isinstance(known, _Recomputed):
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
        kind = operation.results[0].type
        memory = alloc(ir.MemRefType.get([1], kind), [], self.at)
        start = index_constant(0, self.at)

        def body(scope: _Scope) -> None:
            number = self._number(scope)
            reduce_into(operation, self._value(operation.operands[0], scope), memory, start, number, scope.end)

        self._over_threads(body, operation.location)
        loaded = create("memref.load", [kind], [memory, start], self.at).result
        self.known[operation.results[0]] = _Uniform(loaded)

    def _subgroup_reduce(self, operation: ir.Operation) -> None:
        """Threads combine their values, one after the other, in an element of their subgroup."""
        named = operation.attributes
        width = ir.IntegerAttr(named["cluster_size"]).value if "cluster_size" in named else SUBGROUP
        if "cluster_stride" in named and ir.IntegerAttr(named["cluster_stride"]).value != 1:
            raise CompileError(
                "gpu.subgroup_reduce: lanes at a stride are not supported on the host; expected cluster_stride 1",
                locate(operation.location),
            )
        memory = self._flat(operation.results[0].type)

        def group(scope: _Scope) -> tuple[ir.Value, ir.Value]:
            number, lanes = self._number(scope), index_constant(width, scope.end)
            return binary("arith.divui", number, lanes, scope.end), binary("arith.remui", number, lanes, scope.end)

        def combine(scope: _Scope) -> None:
            reduce_into(operation, self._value(operation.operands[0], scope), memory, *group(scope), scope.end)

        def take(scope: _Scope) -> tuple[ir.Value, ...]:
            return (create("memref.load", [operation.results[0].type], [memory, group(scope)[0]], scope.end).result,)

        self._over_threads(combine, operation.location)
        self._give(operation, take)

    def _shuffle(self, operation: ir.Operation) -> None:
        """All threads store their values, then each loads that of the requested lane; its own if there is none."""
        kind = operation.results[0].type
        memory = self._flat(kind)

        def leave(scope: _Scope) -> None:
            value = self._value(operation.operands[0], scope)
            create("memref.store", [], [value, memory, self._number(scope)], scope.end)

        def take(scope: _Scope) -> tuple[ir.Value, ...]:
            index, end = ir.IndexType.get(), scope.end
            offset, width = (
                create("arith.index_cast", [index], [self._value(operand, scope)], end).result
                for operand in list(operation.operands)[1:]
            )
            number, lanes = self._number(scope), index_constant(SUBGROUP, end)
            lane = binary("arith.remui", number, lanes, end)
            mode = str(operation.attributes["mode"])
            source = offset
            if "idx" not in mode:
                way = "arith.xori" if "xor" in mode else "arith.addi" if "down" in mode else "arith.subi"
                source = binary(way, lane, offset, end)
            beyond = binary("arith.addi", binary("arith.subi", number, lane, end), source, end)
            valid = create("arith.andi", [ir.IntegerType.get_signless(1)], [
                compare("ult", source, width, end), compare("ult", beyond, self._count(end), end),
            ], end).result  # fmt: skip
            place = create("arith.select", [index], [valid, beyond, number], end).result
            return create("memref.load", [kind], [memory, place], end).result, valid

        self._over_threads(leave, operation.location)
        self._give(operation, take)

    def _give(self, operation: ir.Operation, take: Callable[[_Scope], tuple[ir.Value, ...]]) -> None:
        """Sets the results of `operation` in each thread to the values that `take` creates."""
        used = [number for number, result in enumerate(operation.results) if any(True for _ in result.uses)]
        memories = {number: self._scratch(operation.results[number].type, operation.location) for number in used}

        def body(scope: _Scope) -> None:
            values = take(scope)
            for number, memory in memories.items():
                self._keep(values[number], memory, scope)

        self._over_threads(body, operation.location)
        self.known.update({operation.results[number]: _Kept(memory) for number, memory in memories.items()})

    def _number(self, scope: _Scope) -> ir.Value:
        """The linear index of the thread in its block, x fastest."""
        number = scope.ids[2]
        for axis in (1, 0):
            above = binary("arith.muli", number, self.sizes[axis], scope.end)
            number = binary("arith.addi", above, scope.ids[axis], scope.end)
        return number

    def _count(self, at: ir.Operation) -> ir.Value:
        """The number of threads of a block."""
        above = binary("arith.muli", self.sizes[0], self.sizes[1], at)
        return binary("arith.muli", above, self.sizes[2], at)

    def _flat(self, kind: ir.Type) -> ir.Value:
        """Memory with an element for each thread of a block, by linear index."""
        sizes = [integer_constant(size) for size in self.sizes]
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            return alloc(ir.MemRefType.get([math.prod(known)], kind), [], self.at)
        return alloc(ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], kind), [self._count(self.at)], self.at)

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
        """Every thread stores its `values` in its elements of `memories`, after loading all values."""
        if not memories:
            return

        def body(scope: _Scope) -> None:
            read = [self._value(value, scope) for value in values]
            for value, memory in zip(read, memories, strict=True):
                self._keep(value, memory, scope)

        self._over_threads(body, user.location)


def _is_collective(operation: ir.Operation) -> bool:
    return operation.name in _COLLECTIVE or any(inner.name in _COLLECTIVE for inner in within(operation))


def _is_used_outside(value: ir.Value, operations: Sequence[ir.Operation]) -> bool:
    """Whether an operation outside `operations` and their regions uses `value`."""
    for use in value.uses:
        owner: ir.Operation | None = use.owner.operation
        while owner is not None and not any(owner == operation for operation in operations):
            parent = owner.parent
            owner = None if parent is None else parent.operation
        if owner is None:
            return True
    return False
