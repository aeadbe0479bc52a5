"""Units of placement: the operations that will be one kernel, and the data flow between units.

    %0 = linalg.matmul …        ┐
    %1 = linalg.add %0, %bias   ├ one unit: 2·m·n·k + 2·m·n operations, the bytes of its operands and results
    %2 = linalg.max %1, 0       ┘

The rules are those of grouping (`passes/fuse/rules.py`), based on the costs of operations instead of canonical forms,
so that they apply before any rewriting: a unit placed as a whole becomes one kernel. Renamings of elements belong to
their reader, a reshape to the operation before it, and computations on constants alone, which run when compiling, to
their reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.program import parameters_of
from motet.compiler.kernels.roles import Role
from motet.compiler.passes.fuse.rules import JOINING, LARGEST_GROUP, Space, may_join, waits_for
from motet.compiler.placement.affinity_analysis import is_replicable, is_tensor
from motet.compiler.placement.costs import WORKING, Cost, Kind, bytes_of, cost_of, is_dynamic
from motet.compiler.targets.rates import Rates


@dataclass
class PlacementUnit:
    """`said` is the affinity that the program gives it, as text, empty if none; `reads` are the units it reads from and
    `inputs` the arguments (by number), with bytes; `moved` are the bytes of all its operands and results, including
    constants; `known` means that no extent was guessed."""

    kind: Kind
    said: str = ""
    operations: list[ir.Operation] = field(default_factory=list[ir.Operation])
    arithmetic: dict[Kind, float] = field(default_factory=dict[Kind, float])
    role: Role = Role.OPAQUE
    space: Space = field(default_factory=Space)
    constant: bool = False
    reads: dict[int, int] = field(default_factory=dict[int, int])
    inputs: dict[int, int] = field(default_factory=dict[int, int])
    moved: int = 0
    known: bool = True

    def seconds(self, rates: Rates) -> float:
        """Its duration on a device; 0 if it is not a kernel."""
        if self.constant or not any(kind in WORKING for kind in self.arithmetic):
            return 0.0
        speeds = {kind: getattr(rates, kind) for kind in WORKING}
        computing = sum(count / speeds[kind] for kind, count in self.arithmetic.items() if kind in speeds)
        return rates.launch + max(computing, self.moved / rates.memory)


@dataclass(frozen=True)
class Units:
    """The units of a function in a valid order of execution; `returned` has for each result the unit that makes it, or
    the number of the argument that it is, and its bytes."""

    units: list[PlacementUnit]
    returned: list[tuple[int | None, int | None, int]]


def units_of(function: ir.Operation, said_of: Callable[[ir.Operation], str], apart: bool = False) -> Units:
    """The units of a function with one block. `said_of` returns the affinity that the program gives an operation; a
    unit only contains operations with the same one. `apart` keeps operations out of a unit that would make it wait for
    another unit: on one device they are fused, but over several devices the unit could start earlier without them."""
    return _UnitBuilder(function, said_of, apart).run()


class _UnitBuilder:
    def __init__(self, function: ir.Operation, said_of: Callable[[ir.Operation], str], apart: bool) -> None:
        self.said_of = said_of
        self.apart = apart
        block = function.regions[0].blocks[0]
        operations = [entry.operation for entry in block.operations]
        self.operations, self.terminator = operations[:-1], operations[-1]
        self.constants = set(parameters_of(function))
        self.numbers = {argument: number for number, argument in enumerate(block.arguments)}
        self.units: list[PlacementUnit] = []
        self.owner: dict[ir.Value, int] = {}
        self.copied: dict[ir.Value, tuple[ir.Value, ...]] = {}  # values recomputed on each device → their operands
        self.waiting: dict[ir.Value, ir.Operation] = {}  # views without a unit yet
        self.depends: list[set[int]] = []
        self.last: list[int] = []  # the position of the unit's last operation
        self.first: list[int] = []

    def run(self) -> Units:
        for position, operation in enumerate(self.operations):
            if is_replicable(operation):
                for result in operation.results:
                    self.copied[result] = tuple(self._read(operation)) if operation.name != "tensor.dim" else ()
                continue
            cost = cost_of(operation)
            if cost.kind == "view" and not self.said_of(operation) and self._is_read_inside(operation):
                self.waiting[operation.results[0]] = operation
                continue
            self._place(operation, cost, position)
        self._fold_constants()
        return self._finished()

    def _is_read_inside(self, view: ir.Operation) -> bool:
        """Whether all readers of a view can compute it while they read."""
        users = [use.owner.operation for use in view.results[0].uses]
        return bool(users) and all(user.name.startswith("linalg.") for user in users)

    # -- formation -------------------------------------------------------------------------------

    def _read(self, operation: ir.Operation) -> Iterator[ir.Value]:
        """The values that an operation reads, looking through values that are copied to their readers."""
        for value in captured_values(operation):
            if value in self.copied:
                yield from self.copied[value]
            else:
                yield value

    def _through_views(self, values: Iterable[ir.Value]) -> Iterator[ir.Value]:
        for value in values:
            if value in self.waiting:
                yield from self._through_views(self._read(self.waiting[value]))
            else:
                yield value

    def _place(self, operation: ir.Operation, cost: Cost, position: int) -> None:
        values = list(dict.fromkeys(self._through_views(self._read(operation))))
        sources = {self.owner[value] for value in values if value in self.owner}
        said = self.said_of(operation)
        constant = not said and all(
            value in self.constants or (value in self.owner and self.units[self.owner[value]].constant)
            for value in values
        ) and all(is_tensor(result) for result in operation.results) and not len(operation.regions) > 1
        index = self._joined(operation, cost, sources, constant, values)
        if index is None:
            index = len(self.units)
            self.units.append(PlacementUnit(cost.kind, said, role=cost.role, space=cost.space, constant=constant))
            self.depends.append(set())
            self.first.append(position)
            self.last.append(position)
        unit = self.units[index]
        self.depends[index] |= sources - {index}
        self.last[index] = position
        for taken in [*self._views(operation), operation]:
            unit.operations.append(taken)
            self.owner.update((result, index) for result in taken.results)
        unit.arithmetic[cost.kind] = unit.arithmetic.get(cost.kind, 0.0) + cost.operations

    def _views(self, operation: ir.Operation) -> list[ir.Operation]:
        """The views that an operation is the first to read, preceded by those that these read."""
        found: list[ir.Operation] = []
        for value in captured_values(operation):
            view = self.waiting.pop(value, None)
            if view is not None:
                found += [*self._views(view), view]
        return found

    def _joined(
        self, operation: ir.Operation, cost: Cost, sources: set[int], constant: bool, values: list[ir.Value]
    ) -> int | None:
        """The unit that an operation joins; None for a new one."""
        said = self.said_of(operation)
        if cost.kind == "alias":
            source = next((self.owner[value] for value in values if value in self.owner), None)
            fits = source is not None and self.units[source].said == said
            return source if fits else None
        if cost.role not in JOINING or constant:
            return None
        for index in sorted(sources, reverse=True):
            unit = self.units[index]
            if self.apart and not sources <= {index, *self.depends[index]}:
                continue
            if unit.said == said and not unit.constant and self._fits(unit, operation, cost) and not any(
                self._reaches(other, index) for other in sources if other != index
            ):
                if cost.role is Role.REDUCTION:
                    unit.kind, unit.role, unit.space = cost.kind, cost.role, cost.space
                return index
        return None

    def _fits(self, unit: PlacementUnit, operation: ir.Operation, cost: Cost) -> bool:
        def is_only_reader() -> bool:
            users = {use.owner.operation for made in unit.operations for value in made.results for use in value.uses}
            return users <= {operation, *unit.operations}

        return len(unit.operations) < LARGEST_GROUP and may_join(
            cost.role, cost.space, unit.role, unit.space, is_only_reader
        )

    def _reaches(self, later: int, earlier: int) -> bool:
        """Whether one unit depends on another, directly or indirectly."""
        # A unit that was complete before the other began cannot depend on it.
        begin = self.first[earlier]
        return waits_for(later, earlier, self.depends.__getitem__, lambda unit: self.last[unit] <= begin)

    # -- completion ------------------------------------------------------------------------------

    def _fold_constants(self) -> None:
        """Merges units computed from constants into the one unit that reads them."""
        readers: list[set[int]] = [set() for _ in self.units]
        for index, sources in enumerate(self.depends):
            for source in sources:
                readers[source].add(index)
        for index in reversed(range(len(self.units))):
            unit = self.units[index]
            if not unit.constant or len(readers[index]) != 1:
                continue
            (reader,) = readers[index]
            target = self.units[reader]
            target.operations = unit.operations + target.operations
            for operation in unit.operations:
                self.owner.update((result, reader) for result in operation.results)
            self.depends[reader] = (self.depends[reader] - {index}) | self.depends[index]
            for source in self.depends[index]:
                readers[source] = (readers[source] - {index}) | {reader}
            unit.operations = []

    def _finished(self) -> Units:
        order = self._order()
        numbers = {old: new for new, old in enumerate(order)}
        written: dict[ir.Value, int] = {}
        for old in order:
            unit = self.units[old]
            unit.reads, unit.inputs = {}, {}
            for value in self._read_from_outside(old):
                size = bytes_of(value.type)
                unit.known = unit.known and not is_dynamic(value.type)
                unit.moved += size
                if value in self.owner:
                    source = numbers[self.owner[value]]
                    unit.reads[source] = unit.reads.get(source, 0) + size
                    written[value] = size
                elif value in self.numbers and value not in self.constants:
                    unit.inputs[self.numbers[value]] = size
        returned: list[tuple[int | None, int | None, int]] = []
        for value in self.terminator.operands:
            size = bytes_of(value.type)
            if value in self.owner:
                written[value] = size
            maker = self.owner.get(value)
            returned.append((None if maker is None else numbers[maker], self.numbers.get(value), size))
        for value, size in written.items():
            unit = self.units[self.owner[value]]
            unit.moved += size
            unit.known = unit.known and not is_dynamic(value.type)
        return Units([self.units[old] for old in order], returned)

    def _read_from_outside(self, index: int) -> list[ir.Value]:
        """The distinct values that a unit reads and does not make."""
        found: dict[ir.Value, None] = {}
        for operation in self.units[index].operations:
            for value in self._read(operation):
                if self.owner.get(value) != index and (value in self.owner or value in self.numbers):
                    found[value] = None
        return list(found)

    def _order(self) -> list[int]:
        """The remaining units, each after the units that it reads from."""
        depends = [
            {self.owner[v] for v in self._read_from_outside(i) if v in self.owner} for i in range(len(self.units))
        ]
        done: set[int] = set()
        order: list[int] = []
        for index in sorted((i for i, u in enumerate(self.units) if u.operations), key=lambda i: self.last[i]):
            stack = [index]
            while stack:
                current = stack[-1]
                if current in done:
                    stack.pop()
                    continue
                missing = [source for source in depends[current] if source not in done]
                if missing:
                    stack += missing
                    continue
                done.add(current)
                order.append(stack.pop())
        return order
