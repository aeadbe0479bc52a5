"""Reads loops over the elements of sequences whose carried tensors are small: recurrent layers.

    %r:2 = scf.for %t … iter_args(%y, %h = %h0) {
      %x_t = tensor.extract_slice %x[%t, 0, 0] …           sequences: tensors read at a place that is linear in %t
      %p = product of %h and %w                       →    one iteration as a kernel; its states; the sequences written
      %n = linalg.generic … ins(%p, %x_t)
      %z = tensor.insert_slice %n into %y[%t, 0, 0] …
      scf.yield %z, %n }

The iteration is read twice, with the first and the second number of the loop: accesses whose offsets differ move with
the loop. Dimensions that no access mixes with others, such as that of a batch, are *rows*: their recurrences are
independent of each other. Every value has at most one other dimension, its *columns*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import CONSTANT
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.functions import symbol_name
from motet.compiler.kernels.kernel import Access, Kernel, Stage
from motet.compiler.kernels.loop_iteration import LoopContext, LoopIteration, is_copied, owner_of
from motet.compiler.kernels.loop_places import LoopPlaces, loop_values
from motet.compiler.kernels.reader.reading import Unreadable
from motet.compiler.kernels.strides import place_of

FOR = "scf.for"
_FEWEST = 4  # iterations

Dimension = tuple[int, int]  # a value and its dimension


@dataclass(frozen=True)
class LoopState:
    """A carried tensor: the value that an iteration reads (-1: none does), the one that it makes, and its value before
    the loop. `result` is the result of the loop's function that is its last value, or -1."""

    read: int
    made: int
    first: int
    result: int = -1


@dataclass(frozen=True)
class WrittenSequence:
    """A sequence of which every iteration writes a part: `value`, at the offset `begin` + iteration · `step` of the
    result `result` of the loop's function, with `strides` for the dimensions of `value`."""

    value: int
    result: int
    begin: int
    step: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Recurrence:
    """`length` iterations of `kernel`. `moving` are the offsets by which the inputs of stages move with each iteration,
    by stage and input; `rows` the sets of dimensions of values that are rows. `arguments` are the arguments of the
    loop's function that are values of the kernel, by value."""

    kernel: Kernel
    length: int
    states: tuple[LoopState, ...]
    written: tuple[WrittenSequence, ...]
    moving: Mapping[tuple[int, int], int]
    rows: tuple[frozenset[Dimension], ...]
    arguments: Mapping[int, int]

    def row_of(self, value: int, dimension: int) -> int | None:
        """The number of the set of rows that a dimension belongs to; None if it is columns, or of extent 1."""
        return next((n for n, row in enumerate(self.rows) if (value, dimension) in row), None)

    def column_of(self, value: int) -> int | None:
        """The dimension of a value that is its columns."""
        shape = self.kernel.values[value].shape
        return next((d for d, size in enumerate(shape) if size != 1 and self.row_of(value, d) is None), None)

    def extent(self, row: int) -> int:
        value, dimension = next(iter(self.rows[row]))
        return int(self.kernel.values[value].shape[dimension])

    @property
    def producers(self) -> dict[int, int]:
        """The stage that makes each value."""
        return {access.value: s for s, stage in enumerate(self.kernel.stages) for access in stage.outputs}

    @property
    def count(self) -> int:
        """The number of independent recurrences."""
        total = 1
        for row in range(len(self.rows)):
            total *= self.extent(row)
        return total


def read_recurrence(function: ir.Operation) -> Recurrence | None:
    """The recurrence that a kernel's function is: views, one loop, and its results. None if it is something else."""
    block = function.regions[0].blocks[0]
    operations = [entry.operation for entry in block.operations]
    loops = [operation for operation in operations if operation.name == FOR]
    if len(loops) != 1 or operations[-2] != loops[0]:
        return None
    loop, returned = loops[0], list(operations[-1].operands)
    if any(owner_of(value) != loop for value in returned) or len(set(returned)) != len(returned):
        return None
    results = {list(loop.results).index(value): number for number, value in enumerate(returned)}
    constant = [CONSTANT in each for each in _attributes(function, len(block.arguments))]
    around = LoopContext(list(block.arguments), constant, operations[:-2], results, symbol_name(function))
    return _read(loop, around)


def read_loop(loop: ir.Operation) -> Recurrence | None:
    """The recurrence that a loop is, as part of a function whose other values it takes as they are."""
    if loop.name != FOR:
        return None
    captured = [
        value for value in dict.fromkeys([*list(loop.operands)[3:], *captured_values(loop)])
        if isinstance(value.type, ir.RankedTensorType) and not is_copied(value)
    ]
    results = {number: number for number, value in enumerate(loop.results) if any(True for _ in value.uses)}
    return _read(loop, LoopContext(captured, [True] * len(captured), [], results, "loop"))


def _read(loop: ir.Operation, around: LoopContext) -> Recurrence | None:
    numbers = loop_values(loop)
    if numbers is None or len(numbers) < _FEWEST or not all(map(_is_static, loop.results)):
        return None
    body = loop.regions[0].blocks[0]
    if any(each.operation.regions and each.operation.name != "linalg.generic" for each in body.operations):
        return None
    places = LoopPlaces(body)
    if not places.are_linear(numbers):
        return None
    sequences = _sequences(body)
    if sequences is None:
        return None
    try:
        first, second = (LoopIteration.of(loop, around, sequences, number) for number in numbers[:2])
        if first is None or second is None:
            return None
        found = _Reading(first, second, around, len(numbers)).recurrence()
    except Unreadable:
        return None
    return found


def _is_static(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and ir.RankedTensorType(value.type).has_static_shape


def _attributes(function: ir.Operation, count: int) -> list[set[str]]:
    if "arg_attrs" not in function.attributes:
        return [set()] * count
    dictionaries = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    return [{entry.name for entry in dictionary} for dictionary in dictionaries]


def _sequences(body: ir.Block) -> list[bool] | None:
    """Which carried tensors are sequences that an iteration writes a part of; None if one is used otherwise."""
    yielded = list(list(body.operations)[-1].operation.operands)
    found: list[bool] = []
    for argument, value in zip(list(body.arguments)[1:], yielded, strict=True):
        owner = owner_of(value)
        uses = [use.owner.operation for use in argument.uses]
        writes = owner is not None and owner.name == "tensor.insert_slice" and owner.operands[1] == argument
        if writes and (len(uses) != 1 or len(list(value.uses)) != 1):
            return None
        found.append(writes)
    return found


@dataclass
class _Reading:
    """Compares two iterations, and finds the rows."""

    first: LoopIteration
    second: LoopIteration
    around: LoopContext
    length: int
    moving: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def recurrence(self) -> Recurrence | None:
        kernel, count = self.first.kernel, len(self.around.arguments)
        if not self._moves():
            return None
        carried = self.first.carried
        reads = {argument - count: i for i, argument in enumerate(kernel.arguments) if argument >= count}
        if any(number in self.first.parts for number in reads):
            return None
        before = iter(self.first.results[carried:])
        states: list[LoopState] = []
        written: list[WrittenSequence] = []
        for number in range(carried):
            value, result = self.first.results[number], self.around.results.get(number, -1)
            if number in self.first.parts:
                part = self._written(number, value, result)
                if part is None:
                    return None
                if result >= 0:
                    written.append(part)
            else:
                states.append(LoopState(reads.get(number, -1), value, next(before), result))
        arguments = {i: argument for i, argument in enumerate(kernel.arguments) if argument < count}
        found = Recurrence(kernel, self.length, tuple(states), tuple(written), self.moving, (), arguments)
        rows = _rows(found)
        return None if rows is None else replace(found, rows=rows)

    def _moves(self) -> bool:
        """Find what moves. False if the iterations differ otherwise."""
        one, two = self.first.kernel, self.second.kernel
        if one.values != two.values or one.arguments != two.arguments or len(one.stages) != len(two.stages) \
                or self.first.results != self.second.results:
            return False
        for s, (a, b) in enumerate(zip(one.stages, two.stages, strict=True)):
            if replace(a, inputs=(), source="") != replace(b, inputs=(), source="") or len(a.inputs) != len(b.inputs):
                return False
            for k, (x, y) in enumerate(zip(a.inputs, b.inputs, strict=True)):
                if x == y:
                    continue
                if x.value != y.value or x.padding is not None or y.padding is not None \
                        or _resting(x) != _resting(y) or x.value not in range(len(one.arguments)):
                    return False
                begin, end = (_offset(one, access, len(a.sizes)) for access in (x, y))
                if begin is None or end is None:
                    return False
                self.moving[s, k] = end - begin
        return True

    def _written(self, number: int, value: int, result: int) -> WrittenSequence | None:
        """What is written to a sequence, if all iterations together write every element of it once."""
        (begin, sizes), (then, again) = self.first.parts[number], self.second.parts[number]
        steps = [b - a for a, b in zip(begin, then, strict=True)]
        moved = [axis for axis, step in enumerate(steps) if step]
        if sizes != again or len(moved) != 1 or abs(steps[moved[0]]) != sizes[moved[0]]:
            return None
        axis = moved[0]
        if any(offset for d, offset in enumerate(begin) if d != axis):
            return None
        last = begin[axis] + steps[axis] * (self.length - 1)
        if min(begin[axis], last) != 0:
            return None
        shape = [size if d != axis else size * self.length for d, size in enumerate(sizes)]
        strides = [1] * len(shape)
        for d in reversed(range(len(shape) - 1)):
            strides[d] = strides[d + 1] * shape[d + 1]
        own = list(self.first.kernel.values[value].shape)
        kept = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]
        if [size for size in own if size != 1] != [size for size, _ in kept]:
            return None
        todo = iter(kept)
        across = tuple(0 if size == 1 else next(todo)[1] for size in own)
        return WrittenSequence(value, result, begin[axis] * strides[axis], steps[axis] * strides[axis], across)


def _resting(access: Access) -> tuple[object, ...]:
    """The map of an access without its constants."""
    return tuple(entry.terms for entry in access.map)


def _offset(kernel: Kernel, access: Access, rank: int) -> int | None:
    place = place_of(kernel, access, rank)
    if place is None or any(part.symbols for part in place.offset):
        return None
    return sum(part.factor for part in place.offset)


def _rows(found: Recurrence) -> tuple[frozenset[Dimension], ...] | None:
    """The sets of dimensions that are rows; None if a value has several other dimensions, or what is carried lacks some
    rows."""
    kernel = found.kernel
    inside = set(found.producers) | {state.read for state in found.states if state.read >= 0}
    linked = _Linked(kernel, inside)
    for stage in kernel.stages:
        if not linked.add(stage):
            return None
    for state in found.states:
        for value in (state.read, state.first):
            if value >= 0:
                if kernel.values[value].shape != kernel.values[state.made].shape:
                    return None
                for d in range(kernel.values[value].rank):
                    linked.union((value, d), (state.made, d))
    groups = linked.rows()
    carried = [*(state.made for state in found.states), *(part.value for part in found.written)]
    for value in inside:
        shape = kernel.values[value].shape
        own = [[n for n, group in enumerate(groups) if (value, d) in group] for d in range(len(shape))]
        columns = [d for d, size in enumerate(shape) if size != 1 and not own[d]]
        numbers = [n for each in own for n in each]
        if len(columns) > 1 or len(set(numbers)) != len(numbers):
            return None
        if value in carried and len(numbers) != len(groups):
            return None
    return tuple(groups)


@dataclass
class _Linked:
    """Dimensions of values that stages access by the same loop."""

    kernel: Kernel
    inside: set[int]
    parent: dict[Dimension, Dimension] = field(default_factory=dict["Dimension", "Dimension"])
    columns: set[Dimension] = field(default_factory=set["Dimension"])

    def find(self, node: Dimension) -> Dimension:
        while self.parent.setdefault(node, node) != node:
            node = self.parent[node]
        return node

    def union(self, a: Dimension, b: Dimension) -> None:
        self.parent[self.find(a)] = self.find(b)

    def add(self, stage: Stage) -> bool:
        """Link what `stage` accesses; False if a result is not written by its own dimensions."""
        loops: dict[int, Dimension] = {}
        for access in stage.outputs:
            for d, entry in enumerate(access.map):
                if self.kernel.values[access.value].shape[d] == 1:
                    continue
                if entry.single is None or stage.iterators[entry.single] == "reduction":
                    return False
                loops.setdefault(entry.single, (access.value, d))
                self.union(loops[entry.single], (access.value, d))
        accesses = [*stage.inputs, *(init for init in stage.inits if isinstance(init, Access))]
        for access in accesses:
            if access.value not in self.inside:
                continue
            if access.padding is not None:
                return False
            for d, entry in enumerate(access.map):
                size = self.kernel.values[access.value].shape[d]
                if size == 1:
                    continue
                node = (access.value, d)
                self.find(node)
                whole = entry.single is not None and stage.sizes[entry.single] == size
                if whole and entry.single in loops:
                    self.union(loops[entry.single], node)
                else:
                    self.columns.add(node)
                    self.columns |= {loops[dim] for dim in entry.dims if dim in loops}
        return True

    def rows(self) -> list[frozenset[Dimension]]:
        mixed = {self.find(node) for node in self.columns}
        groups: dict[Dimension, set[Dimension]] = {}
        for node in list(self.parent):
            value, d = node
            if self.kernel.values[value].shape[d] != 1 and self.find(node) not in mixed:
                groups.setdefault(self.find(node), set()).add(node)
        return [frozenset(group) for group in groups.values()]
