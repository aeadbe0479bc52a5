"""outline-loops: outlines the condition and the body of loops whose parts run on several devices into functions.

    %r = scf.while (%v = %x) : … {                %r = "motet.loop"(%x, %y) {condition = "f_loop_0_condition",
      …                                              body = "f_loop_0_body", carried = 1 : i64, …}
      scf.condition(%p) %v                   →
    } do {                                        func.func @f_loop_0_condition(%v, %y) { … return %p, %v }
    ^bb0(%v: …):                                  func.func @f_loop_0_body(%v, %y) { … return %w }
      …
      scf.yield %w }

The functions are placed like any other function; a plan over devices executes them repeatedly (`artifact/schema.py`,
`Loop`). A `scf.for` counts in a carried value. Values that a loop carries or reads are tensors of the functions:
scalars become tensors of rank 0. Constants, sizes, and values computed from them are recomputed in each function.

A scalar is computed on the host if it only depends on small tensors, so that the host learns the condition without
waiting for another device; else on the device of the largest tensor that it depends on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.devices import AFFINITY, DEFAULT_DEVICE, HOMES, LOOP_OP, LOOP_PART, TURN, WANTED
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.program import NAME, PARAMETER, parameters_of
from motet.compiler.ir.remap import remap
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.affinity_analysis import AffinityAnalysis, is_replicable, is_tensor
from motet.compiler.placement.default_device import default_affinity
from motet.compiler.placement.families import device_families
from motet.compiler.placement.read_devices import devices_of
from motet.compiler.placement.rotate_loops import rotate_placed
from motet.compiler.placement.select_branches import select_placed
from motet.compiler.placement.settle_undefined import settle_undefined
from motet.compiler.placement.unroll_placed_loops import FOR, WHILE, spread, unroll_placed
from motet.compiler.targets.families import HOST
from motet.errors import Location

_SMALL = 1024  # elements; scalars that depend on larger tensors are not computed on the host
_SIGNED_LESS, _UNSIGNED_LESS = 2, 6  # predicates of arith.cmpi

Build = Callable[["_Part"], list[ir.Value]]


@dataclass(frozen=True)
class OutlineLoops(ModulePass):
    """Collects the locations of loops in `places`, by name. Loops inside a condition or body are outlined from it."""

    name = "outline-loops"
    places: dict[str, Location] = field(default_factory=dict[str, Location])

    def run(self, module: ir.Module) -> None:
        devices, _, _ = devices_of(module)
        host = next((each.name for each in devices if device_families(devices, each.name)[:1] == [HOST]), "")
        waiting = [each for each in public_functions(module) if len(each.regions[0].blocks) == 1]
        while waiting:
            function = waiting.pop()
            take_apart(function)
            default = default_affinity(module, function)
            loops = [
                entry.operation for entry in function.regions[0].blocks[0].operations
                if entry.operation.name in (FOR, WHILE) and spread(entry.operation) is not None
            ]
            if default is None or not loops:
                continue
            taken = {symbol_name(each) for each in public_functions(module)}
            for number, loop in enumerate(loops):
                analysis = AffinityAnalysis(function, default)
                name = _name(function, number, taken)
                if (place := locate(loop.location)) is not None:
                    self.places[name] = place
                waiting += _LoopOutliner(function, loop, analysis, host, name).run()


def take_apart(function: ir.Operation) -> None:
    """Unrolls or converts the loops and branches over several devices where possible, including nested ones. No value
    is undefined afterwards."""
    while True:
        rotate_placed(function)
        loops, branches = unroll_placed(function), select_placed(function)
        if not loops and not branches:
            break
    settle_undefined(function)


def _name(function: ir.Operation, number: int, taken: set[str]) -> str:
    """The prefix of the names of a loop's functions, which no function of the module has."""
    name = f"{symbol_name(function)}_loop_{number}"
    while any(each.startswith(name) for each in taken):
        name += "_"
    return name


@dataclass
class _Part:
    """A function under construction, and its values for the values of the source."""

    block: ir.Block
    mapping: dict[ir.Value, ir.Value] = field(default_factory=dict[ir.Value, ir.Value])

    @property
    def end(self) -> ir.InsertionPoint:
        return ir.InsertionPoint(self.block)

    def value(self, value: ir.Value) -> ir.Value:
        """The value for a value of the source; recomputed in the function if it is cheap."""
        if value not in self.mapping and not isinstance(value.owner, ir.Block):
            self.clone(value.owner.operation)
        return self.mapping[value]

    def clone(self, operation: ir.Operation) -> None:
        for operand in captured_values(operation):
            self.value(operand)
        copy = operation.clone(self.end)
        remap(copy, self.mapping)
        self.mapping.update(zip(operation.results, copy.results, strict=True))


class _LoopOutliner:
    """Outlines one loop, in place."""

    def __init__(
        self, function: ir.Operation, loop: ir.Operation, analysis: AffinityAnalysis, host: str, name: str
    ) -> None:
        self.function = function
        self.loop = loop
        self.analysis = analysis
        self.host = host
        self.name = name
        self.constants = set(parameters_of(function))
        blocks = [region.blocks[0] for region in loop.regions]
        self.before, self.after = blocks[0], blocks[-1]
        self.operations = [[entry.operation for entry in block.operations] for block in (self.before, self.after)]
        end = self.operations[1][-1]
        if loop.name == FOR:  # its counter is carried too
            self.carried = [loop.operands[0], *list(loop.operands)[3:]]  # the initial values
            self.passed = list(self.before.arguments)
            self.yielded = [self.before.arguments[0], *end.operands]
        else:
            self.carried = list(loop.operands)
            self.passed = list(self.operations[0][-1].operands)[1:]
            self.yielded = list(end.operands)

    def run(self) -> list[ir.Operation]:
        """Creates the functions of the loop before the function that contains it."""
        captured = self._captured()
        carried_homes = [self._home(a, b) for a, b in zip(self.yielded, self.carried, strict=True)]
        homes = dict(zip(self.before.arguments, carried_homes, strict=True))
        passed_homes = [homes.get(value) or self._home(value) for value in self.passed]
        wanted = [self._home(value) for value in captured]
        parts = [
            self._part("condition", list(self.before.arguments), captured, [*carried_homes, *wanted], self._condition),
            self._part("body", list(self.after.arguments), captured, [*passed_homes, *wanted], self._body),
        ]
        point = ir.InsertionPoint(self.loop)
        given = [value for value in captured if value not in self.constants]
        operands = [
            *(
                self._as_tensor(self._made(value, home, point), "", point)
                for value, home in zip(self.carried, carried_homes, strict=True)
            ),
            *(self._as_tensor(value, "", point) for value in given),
        ]
        kinds = [_tensor_type(value.type) for value in self.passed]
        made = ir.Operation.create(
            LOOP_OP, results=kinds, operands=operands, loc=self.loop.location, ip=point,
            attributes=self._said([*carried_homes, *wanted][: len(operands)], passed_homes, parts),
        )
        results = list(made.results)[self.loop.name == FOR :]
        for old, new in zip(self.loop.results, results, strict=True):
            old.replace_all_uses_with(self._as_number(new, old.type, point))
        self.loop.erase()
        return parts

    def _said(
        self, wanted: Sequence[str], homes: Sequence[str], parts: Sequence[ir.Operation]
    ) -> dict[str, ir.Attribute]:
        condition, body = (ir.StringAttr.get(symbol_name(part)) for part in parts)
        said: dict[str, ir.Attribute] = {
            "sym_name": ir.StringAttr.get(self.name), "condition": condition, "body": body,
            "carried": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(self.carried)),
            WANTED: ir.ArrayAttr.get([ir.StringAttr.get(name) for name in wanted]),
            HOMES: ir.ArrayAttr.get([ir.StringAttr.get(name) for name in homes]),
        }
        if TURN in self.loop.attributes:
            said[TURN] = self.loop.attributes[TURN]
        return said

    def _captured(self) -> list[ir.Value]:
        """The outer values that the functions receive, constants last."""
        found: dict[ir.Value, None] = {}

        def visit(value: ir.Value) -> None:
            owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
            if owner is not None and is_replicable(owner):
                for operand in captured_values(owner):
                    visit(operand)
            else:
                found[value] = None

        operands = list(self.loop.operands)
        bounds = operands[1:3] if self.loop.name == FOR else []
        for value in (*bounds, *list(captured_values(self.loop))[len(operands) :]):
            visit(value)
        return sorted(found, key=lambda value: value in self.constants)

    # -- devices ---------------------------------------------------------------------------------

    def _home(self, *values: ir.Value) -> str:
        """The device of the first of `values` that has one."""
        if not is_tensor(values[0]):
            return self._home_of_number(values[0])
        for value in values:
            found = self.analysis.of_value(value)
            if found is not None and found.device is not None:
                return found.device
        return self._default

    @property
    def _default(self) -> str:
        return self.analysis.default.devices[0][0]

    def _home_of_number(self, number: ir.Value) -> str:
        """The host, unless the scalar depends on a large tensor."""
        largest, where = _SMALL, self.host or self._default
        for tensor in _read_by(number):
            found = self.analysis.of_value(tensor)
            kind = ir.RankedTensorType(tensor.type)
            size = math.prod(kind.shape) if kind.has_static_shape else largest + 1
            if size > largest and found is not None and found.device is not None:
                largest, where = size, found.device
        return where

    # -- building --------------------------------------------------------------------------------

    def _part(
        self, what: str, arguments: list[ir.Value], captured: list[ir.Value], homes: list[str], build: Build
    ) -> ir.Operation:
        """A function of `arguments`, values inside the loop, and `captured`, values around it."""
        given = [*arguments, *captured]
        kinds = [_tensor_type(value.type) for value in given]
        with self.loop.location:
            declared = func.FuncOp(
                f"{self.name}_{what}", ir.FunctionType.get(kinds, []), ip=ir.InsertionPoint(self.function)
            )
            block = declared.add_entry_block()
        made = declared.operation
        part = _Part(block)
        for value, argument in zip(given, block.arguments, strict=True):
            part.mapping[value] = self._as_number(argument, value.type, part.end)
        results = build(part)
        with part.end, self.loop.location:
            func.ReturnOp(results)
        made.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(kinds, [value.type for value in results])
        )
        made.attributes["arg_attrs"] = ir.ArrayAttr.get([
            self._attributes(value, home) for value, home in zip(given, homes, strict=True)
        ])
        made.attributes[LOOP_PART] = ir.UnitAttr.get()
        for name in (AFFINITY, DEFAULT_DEVICE):
            if name in self.function.attributes:
                made.attributes[name] = self.function.attributes[name]
        return made

    def _attributes(self, value: ir.Value, home: str) -> ir.DictAttr:
        """The attributes of an argument: a constant stays a constant, others get their device."""
        if value not in self.constants:
            return ir.DictAttr.get({AFFINITY: ir.StringAttr.get(home)})
        number = list(self.function.regions[0].blocks[0].arguments).index(value)
        own = ir.DictAttr(list(ir.ArrayAttr(self.function.attributes["arg_attrs"]))[number])
        kept = {entry.name: entry.attr for entry in own if entry.name not in (AFFINITY, NAME)}
        return ir.DictAttr.get({PARAMETER: own[PARAMETER], **kept})

    def _condition(self, part: _Part) -> list[ir.Value]:
        """Builds the condition: whether there is another iteration, and the values passed to it."""
        if self.loop.name == FOR:
            index, end = part.value(self.before.arguments[0]), part.value(self.loop.operands[1])
            unsigned = "unsignedCmp" in self.loop.attributes
            predicate = ir.IntegerAttr.get(
                ir.IntegerType.get_signless(64), _UNSIGNED_LESS if unsigned else _SIGNED_LESS
            )
            holds = ir.Operation.create(
                "arith.cmpi", results=[ir.IntegerType.get_signless(1)], operands=[index, end],
                attributes={"predicate": predicate}, loc=self.loop.location, ip=part.end,
            ).results[0]
            home = self._home_of_number(self.loop.operands[1])
        else:
            *operations, end = self.operations[0]
            for operation in operations:
                part.clone(operation)
            holds, home = part.value(end.operands[0]), self._home_of_number(end.operands[0])
        return [self._as_tensor(holds, home, part.end), *(self._result(part, value) for value in self.passed)]

    def _body(self, part: _Part) -> list[ir.Value]:
        """Builds the body: the values carried to the next iteration."""
        for operation in self.operations[1][:-1]:
            part.clone(operation)
        if self.loop.name != FOR:
            return [self._result(part, value) for value in self.yielded]
        index, step = part.value(self.before.arguments[0]), part.value(self.loop.operands[2])
        following = ir.Operation.create(
            "arith.addi", results=[index.type], operands=[index, step], loc=self.loop.location, ip=part.end
        ).results[0]
        home = self._home_of_number(self.before.arguments[0])
        return [
            self._as_tensor(following, home, part.end), *(self._result(part, value) for value in self.yielded[1:])
        ]

    def _result(self, part: _Part, value: ir.Value) -> ir.Value:
        home = "" if is_tensor(value) else self._home_of_number(value)
        return self._as_tensor(part.value(value), home, part.end)

    def _as_tensor(self, value: ir.Value, home: str, point: ir.InsertionPoint) -> ir.Value:
        """A scalar as a tensor of rank 0, computed on the device `home`; empty for the device of its reader."""
        if is_tensor(value):
            return value
        owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if owner is not None and owner.name == "tensor.extract":
            source = owner.operands[0]
            is_argument = isinstance(source.owner, ir.Block) and source not in self.constants
            if is_argument and ir.RankedTensorType(source.type).rank == 0:  # passed on unchanged
                return source
        return ir.Operation.create(
            "tensor.from_elements", results=[_tensor_type(value.type)], operands=[value], loc=self.loop.location,
            attributes={AFFINITY: ir.StringAttr.get(home)} if home else {}, ip=point,
        ).results[0]

    def _made(self, value: ir.Value, home: str, point: ir.InsertionPoint) -> ir.Value:
        """A value of the plan: a constant, or a value that each reader recomputes, becomes one by an operation on some
        device."""
        anew = not isinstance(value.owner, ir.Block) and is_replicable(value.owner.operation)
        if value not in self.constants and not (anew and is_tensor(value)):
            return value
        return ir.Operation.create(
            "tensor.cast", results=[value.type], operands=[value], loc=self.loop.location, ip=point,
            attributes={AFFINITY: ir.StringAttr.get(home)},
        ).results[0]

    def _as_number(self, tensor: ir.Value, kind: ir.Type, point: ir.InsertionPoint) -> ir.Value:
        if kind == tensor.type:
            return tensor
        return ir.Operation.create(
            "tensor.extract", results=[kind], operands=[tensor], loc=self.loop.location, ip=point
        ).results[0]


def _tensor_type(kind: ir.Type) -> ir.Type:
    return kind if isinstance(kind, ir.ShapedType) else ir.RankedTensorType.get([], kind)


def _read_by(number: ir.Value) -> list[ir.Value]:
    """The tensors that a scalar depends on, directly or indirectly."""
    found: dict[ir.Value, None] = {}
    seen: set[ir.Value] = set()
    waiting = [number]
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if is_tensor(value):
            found[value] = None
        elif not isinstance(value.owner, ir.Block):
            waiting += value.owner.operation.operands
    return list(found)
