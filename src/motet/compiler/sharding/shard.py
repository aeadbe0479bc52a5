"""shard: divides a program over the devices of its mesh.

    module attributes {motet.mesh = "x=2"} {                          "motet.device"() {sym_name = "d0", …}
      func.func @f(%x: tensor<4xf32> {motet.sharding = "[x]"}) {  →   "motet.device"() {sym_name = "d1", …}
        %0 = math.exp %x …                                            func.func @f(%x: tensor<4xf32>) {
                                                                        %a = extract_slice %x[0] [2] … on d0
                                                                        %c = math.exp %a {motet.affinity = "d0"}

Shardings are those of the program, and those that the user gives by names of arguments and operations. They are
propagated (`propagation.py`); operations are repeated for each device, with collectives between them (`partition.py`).
A function with collectives outside of `motet.to_local` is the program of one device: its arguments are parts of the
tensors that callers pass, as their shardings say.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from motet.artifact.schema import Alternative
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import all_operations, find_operations
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import NAME, PARAMETER, Program
from motet.compiler.ir.shardings import (
    COLLECTIVES,
    DEVICE_INDEX,
    MESH,
    SHARD_OP,
    SHARDING,
    TO_GLOBAL,
    TO_LOCAL,
    DeviceMesh,
    TensorSharding,
    mesh_of,
    parse_sharding,
    replicated,
    sharding_of,
)
from motet.compiler.ir.source_names import names_of
from motet.compiler.passes.base import Pass
from motet.compiler.placement.read_devices import declarations, declare
from motet.compiler.sharding.parameters import ParameterParts
from motet.compiler.sharding.partition import Partitioner
from motet.compiler.sharding.propagation import GivenSharding, local_values, propagate
from motet.compiler.sharding.requests import ShardRequest
from motet.compiler.sharding.rules.rule import shape_of
from motet.errors import CompileError, OptionError

MESH_DEVICE = "d"  # the devices of a mesh are d0, d1, …


@dataclass(frozen=True)
class Shard(Pass):
    """`mesh` replaces the program's; `requests` are the shardings that the user gives. Each device is one of
    `alternatives`, or else the first device."""

    name = "shard"
    mesh: DeviceMesh | None = None
    requests: tuple[ShardRequest, ...] = ()
    alternatives: tuple[Alternative, ...] = (Alternative("host"),)

    def run(self, program: Program) -> bool:
        module = program.module
        mesh = self.mesh or mesh_of(module)
        if mesh is None:
            self._refuse_without_mesh(module)
            return False
        self._check_mesh(module, mesh)
        if declarations(module):
            raise CompileError(f"a program that names devices is not divided over a mesh ({mesh}); expected one "
                               "without motet.device", locate(declarations(module)[0].location))
        devices = [f"{MESH_DEVICE}{number}" for number in range(mesh.devices)]
        parts = ParameterParts(program)
        used: dict[ShardRequest, str] = {}  # with why, those that could not be
        for function in public_functions(module):
            if _is_program_of_one_device(function):
                _make_local(function, mesh)
            given = _given(function, mesh, self.requests, used)
            tensors = propagate(function, mesh, given)
            Partitioner(function, tensors, devices, parts.of(function)).run()
            _drop_shardings(function)
        for request in self.requests:
            if obstacle := used[request] if request in used else _unknown(module, request.pattern):
                raise OptionError(f"--shard {request.text}: {obstacle}")
        _declare(module, devices, self.alternatives)
        if MESH in module.operation.attributes:
            del module.operation.attributes[MESH]
        return True

    def _check_mesh(self, module: ir.Module, mesh: DeviceMesh) -> None:
        """A mesh that replaces the program's must have its axes."""
        own = mesh_of(module)
        if self.mesh is not None and own is not None and dict(own.axes) != dict(mesh.axes):
            raise OptionError(f"--mesh {self.mesh}: the program's mesh is {own}; expected the same, or no --mesh")

    def _refuse_without_mesh(self, module: ir.Module) -> None:
        if self.requests:
            raise OptionError(f"--shard {self.requests[0].text}: there is no mesh; add --mesh AXIS=DEVICES,…")
        for op in find_operations(module, *COLLECTIVES, TO_LOCAL, SHARD_OP, DEVICE_INDEX):
            raise CompileError(f"{op.name}: there is no mesh whose devices it is over; add --mesh AXIS=DEVICES,…",
                               locate(op.location))


def _is_program_of_one_device(function: ir.Operation) -> bool:
    block = function.regions[0].blocks[0]
    operations = [entry.operation for entry in block.operations]
    if any(op.name == TO_LOCAL for op in operations):
        return False
    return any(op.name in (*COLLECTIVES, DEVICE_INDEX) for op in operations)


# -- shardings -----------------------------------------------------------------------------------


def _given(
    function: ir.Operation, mesh: DeviceMesh, requests: tuple[ShardRequest, ...], used: dict[ShardRequest, str]
) -> dict[ir.Value, GivenSharding]:
    """The shardings that the program and the user give, checked."""
    found: dict[ir.Value, GivenSharding] = {}
    block = function.regions[0].blocks[0]
    attributes = _attributes(function, "arg_attrs", len(block.arguments))
    for number, (argument, own) in enumerate(zip(block.arguments, attributes, strict=True)):
        name = _name_of(own) or f"arg{number}"
        if SHARDING in own:
            sharding = parse_sharding(ir.StringAttr(own[SHARDING]).value)
            _check(argument, sharding, mesh, f"argument {name}", function.location)
            found[argument] = GivenSharding(sharding)
        _request(argument, [name, f"arg{number}"], mesh, requests, used, found, function.location)
    operations = [entry.operation for entry in block.operations]
    local = local_values(operations)
    for op in operations:
        if op.name == SHARD_OP and op.results[0] not in local:
            sharding = sharding_of(op)
            _check(op.results[0], sharding, mesh, op.name, op.location)
            found[op.results[0]] = GivenSharding(sharding)
        names = list(names_of(op.location))
        for result in op.results:
            if names and result not in local and _leaves(result, names):
                _request(result, names, mesh, requests, used, found, op.location)
    return found


def _unknown(module: ir.Module, pattern: str) -> str:
    """What to say of a name that there is not."""
    known: set[str] = set()
    for function in public_functions(module):
        for own in _attributes(function, "arg_attrs", 0):
            known.add(_name_of(own))
        for operation in all_operations(function):
            known.update(names_of(operation.location))
    longer = [name for name in sorted(known) if name.startswith(pattern)]
    close = (longer or get_close_matches(pattern, sorted(known)))[:3]
    near = f"; the nearest are {', '.join(close)}" if close else ""
    return f"no argument or operation has such a name{near}"


def _leaves(value: ir.Value, names: list[str]) -> bool:
    """Whether a value is one that the source's operation with these names returns, and not a step towards it."""
    readers = [names_of(use.owner.location) for use in value.uses]
    return not readers or any(set(names).isdisjoint(own) for own in readers)


def _request(
    value: ir.Value, names: list[str], mesh: DeviceMesh, requests: tuple[ShardRequest, ...],
    used: dict[ShardRequest, str], found: dict[ir.Value, GivenSharding], location: ir.Location,
) -> None:
    shape = shape_of(value)
    for request in requests:
        matched = next((name for name in names if name == request.pattern or fnmatchcase(name, request.pattern)), None)
        if matched is None:
            continue
        if shape is None:
            used.setdefault(request, f"{matched} is {value.type}; expected a tensor with static extents")
            continue
        used[request] = ""
        sharding = request.sharding(len(shape), mesh, matched)
        own = found.get(value)
        if own is not None and own.name and own.sharding != sharding:
            raise OptionError(f"--shard {request.text}: {matched} is {own.sharding} by another --shard, and {sharding} "
                              "by this one; expected one sharding of each tensor")
        _check(value, sharding, mesh, f"--shard {request.text}: {matched}", location)
        found[value] = GivenSharding(sharding, matched)


def _check(value: ir.Value, sharding: TensorSharding, mesh: DeviceMesh, what: str, location: ir.Location) -> None:
    """Refuses axes that the mesh does not have, and extents that their devices do not divide."""
    shape = shape_of(value)
    if shape is None:
        raise CompileError(f"{what}: a sharding of {value.type}; expected a tensor with static extents",
                           locate(location))
    if len(sharding.dimensions) != len(shape):
        raise CompileError(f"{what}: sharding {sharding} has {len(sharding.dimensions)} dimensions, the tensor "
                           f"{value.type} {len(shape)}", locate(location))
    for place, (extent, axes) in enumerate(zip(shape, sharding.dimensions, strict=True)):
        for name in axes:
            if name not in mesh.names:
                raise CompileError(f"{what}: axis {name} is not of the mesh {mesh}; available: {', '.join(mesh.names)}",
                                   locate(location))
        if extent % mesh.size(axes):
            raise CompileError(
                f"{what}: dimension {place} has {extent} elements, which the {mesh.size(axes)} devices along "
                f"{','.join(axes)} of the mesh {mesh} do not divide; expected a multiple of {mesh.size(axes)}",
                locate(location),
            )
    repeated = [name for name in mesh.names if sharding.axes.count(name) > 1]
    if repeated:
        raise CompileError(f"{what}: sharding {sharding} divides two dimensions over {repeated[0]}; expected each axis "
                           "once", locate(location))


def _attributes(function: ir.Operation, kind: str, count: int) -> list[ir.DictAttr]:
    if kind not in function.attributes:
        return [ir.DictAttr.get({})] * count
    return [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes[kind])]


def _name_of(attributes: ir.DictAttr) -> str:
    """The name of an argument in the source; "" if it has none."""
    return next((ir.StringAttr(attributes[key]).value for key in (NAME, PARAMETER) if key in attributes), "")


def _drop_shardings(function: ir.Operation) -> None:
    for kind in ("arg_attrs", "res_attrs"):
        if kind in function.attributes:
            function.attributes[kind] = ir.ArrayAttr.get([
                ir.DictAttr.get({named.name: named.attr for named in ir.DictAttr(each) if named.name != SHARDING})
                for each in ir.ArrayAttr(function.attributes[kind])
            ])


# -- programs of one device ----------------------------------------------------------------------


def _make_local(function: ir.Operation, mesh: DeviceMesh) -> None:
    """Callers of a program of one device pass whole tensors, of which its arguments are parts."""
    block = function.regions[0].blocks[0]
    attributes = _attributes(function, "arg_attrs", len(block.arguments))
    first = block.operations[0].operation
    for argument, own in zip(block.arguments, attributes, strict=True):
        shape = shape_of(argument)
        if shape is None:
            raise CompileError(f"an argument of the program of one device is {argument.type}; expected a tensor with "
                               "static extents", locate(function.location))
        sharding = parse_sharding(ir.StringAttr(own[SHARDING]).value) if SHARDING in own else replicated(len(shape))
        local = argument.type
        argument.set_type(_of_shape(local, sharding.whole(shape, mesh)))
        part = ir.Operation.create(
            TO_LOCAL, results=[local], operands=[argument], attributes={SHARDING: ir.StringAttr.get(str(sharding))},
            loc=argument.location, ip=ir.InsertionPoint(first),
        )
        argument.replace_all_uses_except(part.result, part)
    last = block.operations[len(block.operations) - 1].operation
    results = _attributes(function, "res_attrs", len(last.operands))
    for number, (value, own) in enumerate(zip(list(last.operands), results, strict=True)):
        shape = shape_of(value) or []
        sharding = parse_sharding(ir.StringAttr(own[SHARDING]).value) if SHARDING in own else replicated(len(shape))
        last.operands[number] = ir.Operation.create(
            TO_GLOBAL, results=[_of_shape(value.type, sharding.whole(shape, mesh))], operands=[value],
            attributes={SHARDING: ir.StringAttr.get(str(sharding))}, loc=last.location, ip=ir.InsertionPoint(last),
        ).result
    kind = ir.FunctionType.get([argument.type for argument in block.arguments], [v.type for v in last.operands])
    function.attributes["function_type"] = ir.TypeAttr.get(kind)


def _of_shape(kind: ir.Type, shape: list[int]) -> ir.Type:
    return ir.RankedTensorType.get(shape, ir.RankedTensorType(kind).element_type)


# -- devices -------------------------------------------------------------------------------------


def _declare(module: ir.Module, devices: list[str], alternatives: tuple[Alternative, ...]) -> None:
    point = ir.InsertionPoint.at_block_begin(module.body)
    for number, name in enumerate(devices):
        fallback = [Alternative(fallback=devices[0])] if number else []
        declare(name, [*alternatives, *fallback], point, module.operation.location)
