"""Repeats the operations of a function for each device of a mesh, on the parts of its tensors.

    %0 = linalg.matmul ins(%x [][k], %w [k][])    →   %a = linalg.matmul ins(%x0, %w0) {motet.affinity = "d0"}
                                                      %b = linalg.matmul ins(%x1, %w1) {motet.affinity = "d1"}
                                                      the sum of %a and %b, on each device

Collectives are inserted where an operation needs a tensor divided otherwise than it was made, once for each such
division: a sum that is needed in parts is scattered, not gathered first; a part of a tensor that a device has as a
whole is a slice; axes that go from one dimension to another are an all-to-all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY
from motet.compiler.ir.find import captured_values, find_operations
from motet.compiler.ir.remap import remap
from motet.compiler.ir.shardings import (
    COLLECTIVES,
    DEVICE_INDEX,
    SHARD_OP,
    TO_GLOBAL,
    TO_LOCAL,
    DeviceMesh,
    TensorSharding,
    replicated,
    sharding_of,
)
from motet.compiler.sharding.emission import DeviceWriter
from motet.compiler.sharding.local_collectives import write_collective
from motet.compiler.sharding.parameters import FunctionParameters
from motet.compiler.sharding.propagation import Axes, ShardedTensors, choose_factors
from motet.compiler.sharding.redivide import Redivider
from motet.compiler.sharding.rules.gather import loop_of
from motet.compiler.sharding.rules.rule import Factors, ShardingRule, shape_of
from motet.errors import CompileError


@dataclass
class DividedValue:
    """A value as each device has it. `sharding` is None for values of single devices (`ir/shardings.py`); `partial` are
    axes over which the values are still to be reduced by `kind`. `home` is the device that has it, if only one has.
    `known` are its other divisions."""

    parts: list[ir.Value]
    sharding: TensorSharding | None
    partial: Axes = ()
    kind: str = ""
    home: int | None = None
    known: dict[TensorSharding, list[ir.Value]] = field(default_factory=dict[TensorSharding, list[ir.Value]])


class Partitioner:
    """Divides one function. `tensors` has the shardings that were found for it."""

    def __init__(
        self, function: ir.Operation, tensors: ShardedTensors, devices: Sequence[str], parameters: FunctionParameters
    ) -> None:
        self.block = function.regions[0].blocks[0]
        self.parameters = parameters
        self.tensors = tensors
        self.mesh: DeviceMesh = tensors.mesh
        operations = [entry.operation for entry in self.block.operations]
        self.operations, self.terminator = operations[:-1], operations[-1]
        self.writer = DeviceWriter(self.terminator, devices, self.terminator.location, parameters)
        self.redivider = Redivider(self.writer, self.mesh)
        self.values: dict[ir.Value, DividedValue] = {}
        self.places = list(self.mesh.coordinates())

    def run(self) -> None:
        for argument in self.block.arguments:
            home = None if argument in self.parameters.keys else 0  # every device has parameters
            shape = shape_of(argument)
            sharding = replicated(len(shape)) if shape is not None else TensorSharding(())
            self.values[argument] = DividedValue([argument] * self.mesh.devices, sharding, home=home)
        for op in self.operations:
            self.writer.location = op.location
            self._divide(op)
        self.writer.location = self.terminator.location
        for number, value in enumerate(list(self.terminator.operands)):
            shape = shape_of(value)
            whole = self._as(value, replicated(len(shape) if shape is not None else 0))
            self.terminator.operands[number] = whole[0]
        for op in reversed(self.operations):
            op.erase()
        self._erase_unread()

    def _erase_unread(self) -> None:
        """Erase what devices would compute of results that only the first one returns."""
        for entry in reversed(list(self.block.operations)):
            op = entry.operation
            pure = op.name.startswith(("tensor.", "arith.", "linalg.", "math.", "complex."))
            if pure and not any(list(result.uses) for result in op.results):
                op.erase()

    # -- operations ------------------------------------------------------------------------------

    def _divide(self, op: ir.Operation) -> None:
        reads = list(captured_values(op)) if len(op.regions) else list(op.operands)
        if op.name == TO_LOCAL:
            parts = self._as(op.operands[0], sharding_of(op))
            self.values[op.results[0]] = DividedValue(parts, None)
        elif op.name == TO_GLOBAL:
            self.values[op.results[0]] = DividedValue(self._local(op.operands[0]), sharding_of(op))
        elif op.name == SHARD_OP and self.values[op.operands[0]].sharding is not None:
            wanted = sharding_of(op)
            self.values[op.results[0]] = DividedValue(self._as(op.operands[0], wanted), wanted)
        elif op.name == SHARD_OP:  # over axes that the parts are repeated on
            self.values[op.results[0]] = self.values[op.operands[0]]
        elif op.name == DEVICE_INDEX:
            numbers = [self.writer.number(device, op.results[0].type) for device in range(self.mesh.devices)]
            self.values[op.results[0]] = DividedValue(numbers, None)
        elif op.name in COLLECTIVES:
            parts = write_collective(self.writer, op, self._local(op.operands[0]))
            self.values[op.results[0]] = DividedValue(parts, None)
        elif any(self.values[value].sharding is None for value in reads if value in self.values):
            self._refuse_nested(op)
            self._repeat(op, {value: self._local(value) for value in reads if value in self.values}, local=True)
        elif op.name == "arith.constant":
            self._share(op)
        elif (rule := self.tensors.rules.get(op)) is not None:
            self._divide_by(op, rule)
        else:
            self._refuse_nested(op)
            self._repeat(op, {value: self._whole(value) for value in reads if value in self.values}, local=False)

    def _share(self, op: ir.Operation) -> None:
        """A constant, which each device has a copy of."""
        copy = op.clone(ip=ir.InsertionPoint(self.writer.at))
        shape = shape_of(op.results[0])
        sharding = replicated(len(shape) if shape is not None else 0)
        self.values[op.results[0]] = DividedValue([copy.operation.results[0]] * self.mesh.devices, sharding)

    def _repeat(self, op: ir.Operation, reads: Mapping[ir.Value, Sequence[ir.Value]], *, local: bool) -> None:
        """The operation as it is on each device; `local`: its results are those of single devices."""
        copies = [self._copy(op, device, {value: parts[device] for value, parts in reads.items()})
                  for device in range(self.mesh.devices)]
        for number, result in enumerate(op.results):
            shape = shape_of(result)
            whole = None if local else replicated(len(shape) if shape is not None else 0)
            self.values[result] = DividedValue([copy.results[number] for copy in copies], whole)

    def _divide_by(self, op: ir.Operation, rule: ShardingRule) -> None:
        """The operation on each device, on its part of each factor."""
        axes = choose_factors(op, rule, self.tensors)
        operands = [
            self._as(value, self._wanted(factors, axes)) if value in self.values else [value] * self.mesh.devices
            for value, factors in zip(op.operands, rule.operands, strict=True)
        ]
        inside = {
            value: self._as(value, self._wanted(rule.captured[value], axes)) if value in rule.captured
            else self._whole(value)
            for value in list(captured_values(op))[len(operands) :] if value in self.values
        }
        partial = tuple(name for factor in rule.reduced for name in axes.get(factor, ()))
        kind = next((rule.reduced[factor] for factor in rule.reduced if axes.get(factor)), "")
        first = len(operands) if rule.initial is None else rule.initial
        copies: list[ir.Operation] = []
        for device in range(self.mesh.devices):
            own = [parts[device] for parts in operands]
            if any(self.places[device][name] for name in partial):
                own[first:] = [self._neutral(value, kind, device) for value in own[first:]]
            copy = self._copy(op, device, {value: parts[device] for value, parts in inside.items()}, own)
            self._divide_copy(copy, device, rule, axes)
            copies.append(copy)
        for number, (result, factors) in enumerate(zip(op.results, rule.results, strict=True)):
            sharding = self._wanted(factors, axes)
            parts = [copy.results[number] for copy in copies]
            self.values[result] = DividedValue(parts, sharding, partial, kind)

    def _neutral(self, own: ir.Value, kind: str, device: int) -> ir.Value:
        """What all devices but the first begin a divided reduction with. A fill is that of all, if it is neutral."""
        if kind in ("max", "min", "maxu", "minu", "and", "or"):
            return own
        return self.writer.neutral(own, kind, device)

    def _copy(
        self, op: ir.Operation, device: int, reads: Mapping[ir.Value, ir.Value], operands: Sequence[ir.Value] = ()
    ) -> ir.Operation:
        """A copy on a device, which reads its values: `operands`, if they are given, and others by `reads`."""
        copy = op.clone(ip=ir.InsertionPoint(self.writer.at)).operation
        remap(copy, reads)
        for number, operand in enumerate(operands):
            copy.operands[number] = operand
        copy.attributes[AFFINITY] = ir.StringAttr.get(self.writer.devices[device])
        return copy

    def _divide_copy(self, copy: ir.Operation, device: int, rule: ShardingRule, axes: Mapping[int, Axes]) -> None:
        """Let a copy compute the part of a device."""
        for result, factors in zip(copy.results, rule.results, strict=True):
            shape = shape_of(result)
            if shape is not None:
                local = self._wanted(factors, axes).local(shape, self.mesh)
                result.set_type(ir.RankedTensorType.get(local, ir.RankedTensorType(result.type).element_type))
                rule.resize(copy, local)
        self._shift_indices(copy, rule, axes, device)

    def _shift_indices(
        self, copy: ir.Operation, rule: ShardingRule, axes: Mapping[int, Axes], device: int
    ) -> None:
        """Let the body of a loop nest compute with indices of the whole, except where it reads a part."""
        for index in find_operations(copy, "linalg.index"):
            loop = loop_of(index.results[0])
            if loop is None or not axes.get(loop):
                continue
            extent = rule.extents[loop] // self.mesh.size(axes[loop])
            begin = extent * self.mesh.position(device, axes[loop])
            local = [
                (use.owner.operation, use.operand_number) for use in index.results[0].uses
                if self._reads_part(use.owner.operation, use.operand_number, rule, copy)
            ]
            if not begin:
                continue
            kind = ir.IndexType.get()
            after = ir.InsertionPoint.after(index)
            number = ir.Operation.create(
                "arith.constant", results=[kind], attributes={"value": ir.IntegerAttr.get(kind, begin)},
                loc=index.location, ip=after,
            )
            shifted = ir.Operation.create(
                "arith.addi", results=[kind], operands=[index.results[0], number.result], loc=index.location,
                ip=ir.InsertionPoint.after(number),
            )
            index.results[0].replace_all_uses_except(shifted.result, shifted)
            for owner, operand in local:
                owner.operands[operand] = index.results[0]

    def _reads_part(self, reader: ir.Operation, operand: int, rule: ShardingRule, copy: ir.Operation) -> bool:
        """Whether an operand is the index into a tensor's divided dimension."""
        if reader.name != "tensor.extract" or operand == 0:
            return False
        for value, factors in rule.captured.items():
            if self._is_part_of(reader.operands[0], value):
                return factors[operand - 1] is not None
        return False

    def _is_part_of(self, part: ir.Value, whole: ir.Value) -> bool:
        known = self.values[whole]
        return part in known.parts or any(part in parts for parts in known.known.values())

    # -- values ----------------------------------------------------------------------------------

    def _wanted(self, factors: Factors, axes: Mapping[int, Axes]) -> TensorSharding:
        return TensorSharding(tuple(() if factor is None else axes.get(factor, ()) for factor in factors))

    def _whole(self, value: ir.Value) -> list[ir.Value]:
        shape = shape_of(value)
        return self._as(value, replicated(len(shape) if shape is not None else 0))

    def _local(self, value: ir.Value) -> list[ir.Value]:
        """A value of single devices; of one that all have, each its own."""
        known = self.values[value]
        return known.parts if known.sharding is None else self._whole(value)

    def _as(self, value: ir.Value, wanted: TensorSharding) -> list[ir.Value]:
        """A value's parts in another division, which is made once."""
        known = self.values[value]
        if known.sharding is None:
            raise CompileError("a value of one device is used as a whole tensor; expected motet.to_global", None)
        if shape_of(value) is None or (known.sharding == wanted and not known.partial):
            return known.parts
        if wanted not in known.known:
            known.known[wanted] = self.redivider.redivide(
                known.parts, known.sharding, wanted, known.partial, known.kind, known.home
            )
        return known.known[wanted]

    def _refuse_nested(self, op: ir.Operation) -> None:
        inner = find_operations(op, *COLLECTIVES, TO_LOCAL, TO_GLOBAL, DEVICE_INDEX, SHARD_OP)
        if inner:
            raise CompileError(
                f"{inner[0].name}: a collective inside {op.name} is not supported; expected it outside of loops and "
                "branches: unroll the loop", locate(inner[0].location),
            )
