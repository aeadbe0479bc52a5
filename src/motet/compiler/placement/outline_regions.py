"""outline-regions: outlines the operations that run on one device between two transfers into a function.

    func.func @f(%x) {                                              func.func @f_region_0(%x) {motet.device = "cpu"}
      %0 = linalg.abs … {motet.affinity = "cpu"}              →     func.func @f_region_1(%0) {motet.device = "gpu"}
      %1 = "motet.transfer"(%0) {to = "gpu"}
      %2 = linalg.exp … {motet.affinity = "gpu"}                    plan: run f_region_0, transfer, run f_region_1
    }

The level of an operation is one more than that of operands from another device or other queues, and at least that of
its other operands. Operations of one device, queues and level form a region: no two regions depend on each other. Only
placed functions (place-operations, insert-transfers) are outlined. If cost has numbered stages (place-automatically),
operations of one device and stage form a region instead. Values that are recomputed on each device (constants, sizes)
are copied into every region that reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from motet.artifact.schema import Loop, Plan, Step
from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.devices import AFFINITY, ANY_QUEUE, HOMES, LOOP_OP, STAGE, TRANSFER_OP, TURN
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.program import DEVICE, NAME, STATE, parameters_of
from motet.compiler.ir.remap import remap
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.affinity_analysis import explicit_affinity, is_replicable, names_in, pins
from motet.compiler.placement.default_device import default_affinity
from motet.compiler.placement.insert_transfers import device_of, is_placed
from motet.compiler.placement.unroll_placed_loops import turn_of
from motet.graphs.order import in_order


@dataclass(frozen=True)
class OutlineRegions(ModulePass):
    """Collects in `plans` the plan of every function that was split, by name; `devices` are the names of the devices
    that plans number."""

    name = "outline-regions"
    devices: tuple[str, ...] = ()
    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])

    def run(self, module: ir.Module) -> None:
        devices = self.devices or declared_devices(module)
        for function in public_functions(module):
            default = default_affinity(module, function)
            if default is not None and is_placed(function):
                outliner = _RegionOutliner(module, function, default.devices[0][0], devices, self.plans)
                self.plans[symbol_name(function)] = outliner.run()
                function.erase()


def declared_devices(module: ir.Module) -> tuple[str, ...]:
    """The names of the module's devices, in order."""
    return tuple(
        symbol_name(entry.operation)
        for entry in module.body.operations
        if entry.operation.name == "motet.device"
    )


@dataclass
class _Region:
    """The operations of one device and level, and of one iteration of an unrolled loop."""

    device: str
    level: int
    queues: int = 0
    turn: tuple[int, int] | None = None
    operations: list[ir.Operation] = field(default_factory=list[ir.Operation])
    positions: list[int] = field(default_factory=list[int])  # of the operations in the function

    def take(self, operation: ir.Operation, position: int) -> None:
        self.operations.append(operation)
        self.positions.append(position)


class _RegionOutliner:
    def __init__(
        self, module: ir.Module, function: ir.Operation, default: str, devices: Sequence[str], plans: dict[str, Plan]
    ) -> None:
        self.module = module
        self.function = function
        self.name = symbol_name(function)
        self.default = default
        self.plans = plans  # of earlier functions, including those of its loops
        self.numbers = {name: number for number, name in enumerate(devices)}
        self.block = function.regions[0].blocks[0]
        self.taken = {
            symbol_name(entry.operation) for entry in module.body.operations if entry.operation.name == "func.func"
        }
        operations = [entry.operation for entry in self.block.operations]
        self.operations, self.terminator = operations[:-1], operations[-1]
        self.constants = set(parameters_of(function))
        self.values: dict[ir.Value, int] = {}  # the values of the plan
        self.steps: list[Step] = []
        # Values are hashed by identity, operations by their contents: operations are identified by their first results.
        self.copied = {o.results[0]: o for o in self.operations if is_replicable(o)}
        self.order = {result: i for i, o in enumerate(self.operations) for result in o.results}
        self.sections = _sections(self.operations, set(self.copied))

    def run(self) -> Plan:
        block = self.block
        inputs = [self._number(a) for a in block.arguments if a not in self.constants]
        home: dict[ir.Value, str] = {}
        argument_pins = pins(self.function, "arg_attrs", len(block.arguments))
        for argument, pin in zip(block.arguments, argument_pins, strict=True):
            home[argument] = pin.devices[0][0] if pin else self.default
        staged = any(STAGE in operation.attributes for operation in self.operations)
        ordered = self._stages(home) if staged else self._levels(home)
        inside = {
            result: entry for entry in ordered if isinstance(entry, _Region)
            for operation in entry.operations for result in operation.results
        }
        count = 0
        for entry in ordered:
            if isinstance(entry, _Region):
                self._outline(entry, count, inside)
                count += 1
            elif entry.name == LOOP_OP:
                self._loop(entry)
            else:
                self._transfer(entry)
        results = list(self.terminator.operands)
        result_pins = pins(self.function, "res_attrs", len(results))
        for value in dict.fromkeys(results):
            if value in self.constants:
                self._return_constant(value, count)
                count += 1
        numbered = [self._number(value) for value in results]
        return Plan(
            values=len(self.values), inputs=inputs, results=numbered,
            input_devices=[self.numbers[home[a]] for a in block.arguments if a not in self.constants],
            result_devices=[
                self.numbers[pin.devices[0][0] if pin else home.get(value, self.default)]
                for value, pin in zip(results, result_pins, strict=True)
            ],
            steps=self.steps,
        )

    def _levels(self, home: dict[ir.Value, str]) -> list[_Region | ir.Operation]:
        """Regions and transfers by level; the transfers that a level's regions wait for precede them."""
        levels: dict[ir.Value, int] = {}
        sources: dict[ir.Value, set[tuple[str, int]]] = {}  # for copied values: the producers that they depend on
        makers: dict[ir.Value, tuple[str, int]] = {}  # for values of regions: device and queues of the producer
        transfers: list[tuple[int, ir.Operation]] = []
        placed: list[tuple[int, int]] = []  # operations of regions: position and level
        for position, operation in enumerate(self.operations):
            operands = list(captured_values(operation))
            level = max((levels.get(v, 0) for v in operands), default=0)
            if len(operation.results) and operation.results[0] in self.copied:
                found = {makers[v] for v in operands if v in makers}
                found.update(*(sources.get(v, set()) for v in operands))
                for result in operation.results:
                    levels[result], sources[result] = level, found
                continue
            device = device_of(operation) or self.default
            if operation.name in (TRANSFER_OP, LOOP_OP):
                level += 1
                transfers.append((level, operation))
            else:
                own = (device, _queues(operation))
                # Values from elsewhere are waited for, including tensors of which only a size is read.
                waited = [levels[v] for v in operands if makers.get(v, own) != own or sources.get(v, set()) - {own}]
                level = max(level, *(one + 1 for one in waited)) if waited else level
                makers.update((result, own) for result in operation.results)
                placed.append((position, level))
            for result in operation.results:
                levels[result] = level
                home[result] = device
            if operation.name == LOOP_OP:
                home.update(zip(operation.results, names_in(operation, HOMES), strict=True))
        self._delay_constants(levels, makers)
        regions: dict[tuple[str, int, int, int], _Region] = {}
        sections: list[int] = []  # of regions, in the order in which they were created
        for position, level in placed:
            operation, section = self.operations[position], self.sections[position]
            device, queues = device_of(operation) or self.default, _queues(operation)
            level = levels[operation.results[0]] if len(operation.results) else level
            region = regions.setdefault(
                (device, queues, level, section), _Region(device, level, queues, turn_of(operation))
            )
            if not region.operations:
                sections.append(section)
            region.take(operation, position)
        # On one level and device, sections keep their order: a later one may read the results of an earlier one.
        ordered: list[tuple[tuple[int, int, int], _Region | ir.Operation]] = [
            *(((region.level, 1, section), region) for section, region in zip(sections, regions.values(), strict=True)),
            *(((level, 0, 0), transfer) for level, transfer in transfers),
        ]
        ordered.sort(key=lambda entry: entry[0])
        entries = [entry for _, entry in ordered]
        return self._pipelined(entries, [key[0] for key, _ in ordered]) if len(set(self.sections)) > 1 else entries

    def _delay_constants(self, levels: dict[ir.Value, int], makers: dict[ir.Value, tuple[str, int]]) -> None:
        """Give what is computed of constants alone the level of its first reader, in whose region it is folded, unless
        another device reads it."""
        fixed = set(self.constants)
        readers: dict[ir.Value, list[ir.Operation]] = {}
        for operation in (*self.operations, self.terminator):
            if all(value in fixed for value in self._read_by(operation)):
                fixed.update(operation.results)
            for value in dict.fromkeys(captured_values(operation)):
                readers.setdefault(value, []).append(operation)
        for operation in reversed(self.operations):
            results = list(operation.results)
            if not results or results[0] not in makers or results[0] not in fixed:
                continue
            found = [reader.results[0:1] for value in results for reader in readers.get(value, [])]
            if found and all(first and makers.get(first[0]) == makers[results[0]] for first in found):
                levels.update(dict.fromkeys(results, min(levels[first[0]] for first in found)))

    def _pipelined(self, entries: list[_Region | ir.Operation], levels: Sequence[int]) -> list[_Region | ir.Operation]:
        """Reorders entries, which are in a valid order, into a software pipeline of their loops' iterations."""
        operations = [entry.operations if isinstance(entry, _Region) else [entry] for entry in entries]
        makers = {
            result: number for number, part in enumerate(operations) for operation in part
            for result in operation.results
        }
        needs = [
            {makers[v] for operation in part for v in self._read_by(operation) if v in makers} - {number}
            for number, part in enumerate(operations)
        ]
        section = {o.results[0]: s for o, s in zip(self.operations, self.sections, strict=True) if len(o.results)}
        turns: list[tuple[int, int] | None] = []
        places: list[int] = []  # in the program: before, in or after which loop
        of_loops = _places_of_sections(self.operations, self.sections)
        for number, entry in enumerate(entries):
            if isinstance(entry, _Region):
                turns.append(entry.turn)
                places.append(of_loops[self.sections[entry.positions[0]]])
                continue
            # A transfer belongs to the iteration that computed its value.
            maker = next(iter(needs[number]), None)
            turns.append(turn_of(entry) or (turns[maker] if maker is not None else None))
            places.append(places[maker] if maker is not None else of_loops[section[entry.results[0]]])
        first: dict[tuple[int, int], int] = {}
        for entry, turn, level in zip(entries, turns, levels, strict=True):
            if turn is not None:
                level -= not isinstance(entry, _Region)
                first[turn] = min(first.get(turn, level), level)
        keys: list[tuple[int, int, int]] = []
        for entry, turn, place, level in zip(entries, turns, places, levels, strict=True):
            # Values of an iteration are transferred when available, before the previous iteration continues.
            own = level if isinstance(entry, _Region) or turn is None else level - 1
            keys.append((place, own, 0) if turn is None else (place, turn[1] + own - first[turn], -turn[1]))
        return [entries[number] for number in in_order(needs, keys)]

    def _stages(self, home: dict[ir.Value, str]) -> list[_Region | ir.Operation]:
        """Regions by stage; each transfer as soon as its value is available."""
        entries: list[_Region | ir.Operation] = []
        keys: list[tuple[int, int, int]] = []  # the priorities of the entries that are ready
        needs: list[set[int]] = []
        regions: dict[tuple[str, int, int, int], int] = {}
        makers: dict[ir.Value, int] = {}
        for position, (operation, section) in enumerate(zip(self.operations, self.sections, strict=True)):
            if len(operation.results) and operation.results[0] in self.copied:
                continue
            device = device_of(operation) or self.default
            sources = {makers[value] for value in self._read_by(operation) if value in makers}
            if operation.name == TRANSFER_OP:
                number = len(entries)
                entries.append(operation)
                keys.append((max((keys[source][0] for source in sources), default=-1), section, 1))
            else:
                stage = ir.IntegerAttr(operation.attributes[STAGE]).value if STAGE in operation.attributes else 0
                queues = _queues(operation)
                number = regions.setdefault((device, queues, stage, section), len(entries))
                if number == len(entries):
                    entries.append(_Region(device, stage, queues, turn_of(operation)))
                    keys.append((stage, section, 0))
                region = entries[number]
                if isinstance(region, _Region):
                    region.take(operation, position)
            if number == len(needs):
                needs.append(set())
            needs[number] |= sources - {number}
            for result in operation.results:
                makers[result], home[result] = number, device
        return [entries[number] for number in in_order(needs, keys)]

    def _read_by(self, operation: ir.Operation) -> Iterator[ir.Value]:
        """The values that an operation reads, looking through values that are copied to their readers."""
        for value in captured_values(operation):
            if value in self.copied:
                yield from self._read_by(self.copied[value])
            else:
                yield value

    # -- building --------------------------------------------------------------------------------

    def _number(self, value: ir.Value) -> int:
        return self.values.setdefault(value, len(self.values))

    def _transfer(self, operation: ir.Operation) -> None:
        device = self.numbers[device_of(operation) or self.default]
        self.steps.append(Step(
            "transfer", device, [self._number(operation.operands[0])], [self._number(operation.results[0])],
            turn=self._turn_of_transfer(operation),
        ))

    def _loop(self, operation: ir.Operation) -> None:
        """Adds a step with the plans of the loop's condition and body, which are not callable functions."""
        condition, body = (
            self.plans.pop(ir.StringAttr(operation.attributes[name]).value) for name in ("condition", "body")
        )
        carried = ir.IntegerAttr(operation.attributes["carried"]).value
        self.steps.append(Step(
            "loop", condition.result_devices[0], [self._number(value) for value in operation.operands],
            [self._number(result) for result in operation.results],
            ir.StringAttr(operation.attributes["sym_name"]).value, turn=turn_of(operation),
            loop=Loop(carried, condition, body),
        ))

    def _turn_of_transfer(self, transfer: ir.Operation) -> tuple[int, int] | None:
        """The iteration of a transfer: its own attribute, or that of the operation that computed its value."""
        owner = transfer.operands[0].owner
        if (own := turn_of(transfer)) is not None or isinstance(owner, ir.Block):
            return own
        return turn_of(owner.operation)

    def _outline(self, region: _Region, count: int, inside: dict[ir.Value, _Region]) -> None:
        cut = self._with_copies(region)
        made = {result for operation in cut for result in operation.results}
        read = dict.fromkeys(v for operation in cut for v in captured_values(operation))
        arguments = [value for value in read if value not in made]
        results = [
            result for operation in region.operations for result in operation.results
            if any(self._leaves(use.owner.operation, region, inside) for use in result.uses)
        ]
        # Constants follow inputs, as in all functions.
        arguments = [a for a in arguments if a not in self.constants] + [a for a in arguments if a in self.constants]
        name = self._region_name(count)
        self._build(name, region, cut, arguments, results)
        operands = [self._number(a) for a in arguments if a not in self.constants]
        self.steps.append(Step(
            "run", self.numbers[region.device], operands, [self._number(r) for r in results], name, region.queues,
            turn=region.turn,
        ))

    def _region_name(self, count: int) -> str:
        """A name that no function of the module has."""
        name = f"{self.name}_region_{count}"
        while name in self.taken:
            name += "_"
        return name

    def _return_constant(self, value: ir.Value, count: int) -> None:
        """Returns a constant as the result of a region that only makes it."""
        name = self._region_name(count)
        region = _Region(self.default, 0)
        self._build(name, region, [], [value], [value])
        self.steps.append(Step("run", self.numbers[self.default], [], [self._number(value)], name))

    def _with_copies(self, region: _Region) -> list[ir.Operation]:
        """The region's operations, and the copied ones that they need, in program order."""
        needed = dict(zip(region.positions, region.operations, strict=True))
        waiting = list(region.operations)
        while waiting:
            for value in captured_values(waiting.pop()):
                if value in self.copied and self.order[value] not in needed:
                    needed[self.order[value]] = self.copied[value]
                    waiting.append(self.copied[value])
        return [needed[position] for position in sorted(needed)]

    def _leaves(self, user: ir.Operation, region: _Region, inside: dict[ir.Value, _Region]) -> bool:
        """Whether a user of a result is outside the region."""
        while user.parent is not None and user.parent.operation.name != "func.func":
            user = user.parent.operation
        if not len(user.results):  # the terminator or an assertion
            return not any(user == own for own in region.operations)
        result = user.results[0]
        if result in self.copied:
            return any(self._leaves(use.owner.operation, region, inside) for use in result.uses)
        return inside.get(result) is not region

    def _build(
        self, name: str, region: _Region, cut: list[ir.Operation], arguments: list[ir.Value], results: list[ir.Value]
    ) -> None:
        location = region.operations[0].location if region.operations else self.function.location
        with location:
            function = func.FuncOp(
                name, ir.FunctionType.get([a.type for a in arguments], [r.type for r in results]),
                ip=ir.InsertionPoint(self.function),
            )
            block = function.add_entry_block()
        function.operation.attributes[DEVICE] = ir.StringAttr.get(region.device)
        function.operation.attributes["arg_attrs"] = ir.ArrayAttr.get([self._attributes(a) for a in arguments])
        mapping = dict(zip(arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block), location:
            for operation in cut:
                copy = operation.clone()
                remap(copy, mapping)
                for said in (AFFINITY, STAGE, TURN):
                    if said in copy.attributes:
                        del copy.attributes[said]
                mapping.update(zip(operation.results, copy.results, strict=True))
            func.ReturnOp([mapping[result] for result in results])

    def _attributes(self, argument: ir.Value) -> ir.DictAttr:
        """The attributes of an argument that is one of the function's."""
        if not isinstance(argument.owner, ir.Block) or "arg_attrs" not in self.function.attributes:
            return ir.DictAttr.get({})
        number = list(self.block.arguments).index(argument)
        own = ir.DictAttr(list(ir.ArrayAttr(self.function.attributes["arg_attrs"]))[number])
        kept = {entry.name: entry.attr for entry in own if entry.name not in (AFFINITY, NAME, STATE)}
        return ir.DictAttr.get(kept)


def _sections(operations: Sequence[ir.Operation], copied: set[ir.Value]) -> list[int]:
    """For each operation, the number of changes of iteration before it. Transfers and copied values do not count: they
    are placed with the operations that they belong to."""
    found: list[int] = []
    before: tuple[int, int] | None = None
    for operation in operations:
        own = turn_of(operation)
        moved = operation.name == TRANSFER_OP or (len(operation.results) > 0 and operation.results[0] in copied)
        found.append((found[-1] if found else 0) + (own != before and not moved))
        before = before if moved else own
    return found


def _places_of_sections(operations: Sequence[ir.Operation], sections: Sequence[int]) -> dict[int, int]:
    """For each section the position in the program of its loop, or between two loops."""
    places: dict[int, int] = {}
    place, before = 0, None
    for operation, section in zip(operations, sections, strict=True):
        if section not in places:
            turn = turn_of(operation)
            loop = None if turn is None else turn[0]
            place += bool(places) and loop != before
            before = loop
            places[section] = place
    return places


def _queues(operation: ir.Operation) -> int:
    affinity = explicit_affinity(operation)
    mask = affinity.devices[0][1] if affinity is not None else ANY_QUEUE
    return 0 if mask == ANY_QUEUE else mask
