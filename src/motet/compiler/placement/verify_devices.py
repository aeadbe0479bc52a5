"""verify-devices: refuses programs whose devices and references to them are inconsistent; changes nothing.

    "motet.device"() {sym_name = "a", alternatives = ["@b"]}       error: @a falls back to @b, which names no device
    %1 = "motet.transfer"(%0) {to = "gpuu"}                        error: no device is called gpuu; declared: cpu, gpu

There is one error, for the first wrong name, at its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from motet.artifact.schema import LogicalDevice
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, DEFAULT_DEVICE, DEVICE_OP, TO, TRANSFER_OP, parse_affinity
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.hal_attributes import AttributeReader, SpellingError
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.read_devices import declarations, declared_name, devices_of
from motet.errors import CompileError

PREFIXES = tuple(f"#hal.device.{kind}<" for kind in ("affinity", "promise", "optimal"))


@dataclass(frozen=True)
class VerifyDevices(ModulePass):
    """Raises CompileError for unknown and duplicate names, cycles of fallbacks, and misplaced declarations."""

    name = "verify-devices"

    def run(self, module: ir.Module) -> None:
        _check_names(module)
        devices, _, links = devices_of(module)
        names = [device.name for device in devices]
        others = _other_symbols(module)
        _check_fallbacks(module, devices, others)
        for link in links:
            for end in (link.source, link.target):
                _require(end, names, f"link @{link.source} -> @{link.target}:", module.operation, others)
        for operation in all_operations(module):
            if operation.name == DEVICE_OP:
                _check_place(operation)
                continue
            for what, name in mentioned(operation):
                _require(name, names, what, operation, others)
            if operation.name == TRANSFER_OP:
                _check_transfer(operation)


def _check_place(declaration: ir.Operation) -> None:
    around = declaration.parent
    if around is None or around.operation.name != "builtin.module" or around.operation.parent is not None:
        raise CompileError(f"{DEVICE_OP}: expected outside all functions", locate(declaration.location))


def _check_names(module: ir.Module) -> None:
    taken: set[str] = set()
    for declaration in declarations(module):
        name = declared_name(declaration)
        if name in taken:
            raise CompileError(
                f"device @{name}: the name is taken; expected each name once", locate(declaration.location)
            )
        taken.add(name)


def _check_fallbacks(module: ir.Module, devices: Sequence[LogicalDevice], others: Mapping[str, str]) -> None:
    places = {declared_name(operation): operation for operation in declarations(module)}
    names = list(places)
    follows: dict[str, list[str]] = {}
    for device in devices:
        follows[device.name] = [one.fallback for one in device.alternatives if one.fallback]
        for fallback in follows[device.name]:
            _require(fallback, names, f"device @{device.name}: its fallback", places[device.name], others)
    for name in names:
        if cycle := _cycle(name, follows):
            raise CompileError(
                f"device @{name}: it falls back to itself: {' -> '.join(f'@{step}' for step in cycle)}; "
                "expected fallbacks to end at devices of some family", locate(places[name].location),
            )


def _cycle(start: str, follows: Mapping[str, Sequence[str]]) -> list[str]:
    """A cycle of fallbacks through a device; empty if there is none."""
    waiting = [[start]]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        for following in follows[path[-1]]:
            if following == start:
                return [*path, start]
            if following not in seen:
                seen.add(following)
                waiting.append([*path, following])
    return []


def _require(
    name: str, names: Sequence[str], what: str, operation: ir.Operation, others: Mapping[str, str]
) -> None:
    if name in names:
        return
    is_not = f"is {others[name]}, not a device" if name in others else "names no device"
    there = ", ".join(f"@{one}" for one in names) or "none"
    raise CompileError(
        f"{what} @{name} {is_not}; declared: {there}; declare it in the program, or give --device {name}=…",
        locate(operation.location),
    )


def _check_transfer(operation: ir.Operation) -> None:
    kinds = [operation.operands[0].type] if len(operation.operands) == 1 else []
    if kinds != [result.type for result in operation.results]:
        raise CompileError(
            f"{TRANSFER_OP}: expected one tensor, and a result of its type", locate(operation.location)
        )


def _other_symbols(module: ir.Module) -> dict[str, str]:
    """The other symbols of the module, by name."""
    return {
        symbol_name(entry.operation): f"a {entry.operation.name}"
        for entry in module.body.operations
        if "sym_name" in entry.operation.attributes and entry.operation.name != DEVICE_OP
    }


# -- names in attributes -------------------------------------------------------------------------


def mentioned(operation: ir.Operation) -> Iterator[tuple[str, str]]:
    """Every device that an operation names, with the attribute that names it."""
    for name in operation.attributes:
        if name == "function_type":
            continue
        value = operation.attributes[name]
        if name in (AFFINITY, DEFAULT_DEVICE) or (operation.name == TRANSFER_OP and name == TO):
            what = {AFFINITY: f"{operation.name}: affinity to", DEFAULT_DEVICE: "default device"}
            yield from _named(value, what.get(name, "transfer to"))
        elif name in ("arg_attrs", "res_attrs"):
            kind = "argument" if name == "arg_attrs" else "result"
            function = symbol_name(operation)
            for number, attribute in enumerate(ir.ArrayAttr(value)):
                for entry in ir.DictAttr(attribute):
                    what = f"@{function}: {kind} {number}: affinity to"
                    yield from _named(entry.attr, what) if entry.name == AFFINITY else _nested(entry.attr)
        else:
            yield from _nested(value)


def _named(value: ir.Attribute, what: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, ir.StringAttr):
        yield from ((what, device) for device, _ in parse_affinity(value.value).devices)


def _nested(value: ir.Attribute) -> Iterator[tuple[str, str]]:
    """Affinities in attributes of other dialects."""
    if isinstance(value, ir.ArrayAttr):
        for one in value:
            yield from _nested(one)
    elif isinstance(value, ir.DictAttr):
        for entry in value:
            yield from _nested(entry.attr)
    elif isinstance(value, ir.OpaqueAttr) and str(value).startswith(PREFIXES):
        try:
            affinity = AttributeReader(str(value)).affinity()
        except SpellingError:
            return
        yield from (("affinity to", device) for device, _ in affinity.devices)
