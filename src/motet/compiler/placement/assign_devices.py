"""assign-devices: gives a program the devices that the command line names (`--device`).

    module {…}            with  cpu=host, gpu=cuda,@cpu  →   module {
                                                               "motet.device"() {sym_name = "cpu", …["host"]}
                                                               "motet.device"() {sym_name = "gpu", …["cuda", "@cpu"]}
    "motet.device"() {sym_name = "gpu", …["hip"]}  with  gpu=host    →   … alternatives = ["host"] …

A flag with the name of a device of the program replaces its alternatives; a physical device leaves its fallbacks.
Other named flags append devices, which the program must name or fall back to unless operations are placed by cost.
Flags without names fill the devices of the program, its default one first, then in order; if the program declares none
they add `__device_0`, …. A physical device that is the only flag, and the only flag without a name next to named ones,
fill all devices that no flag names. A single flag without a name that lists one family, for a program without devices,
adds none: the program then is for any one device. `host` alone does not change a program that declares devices: it only
selects the processors that code is generated for.

The default device is the one that the program names, else its first, else that of the first flag.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from msgspec import structs

from motet.artifact.device_flags import ALL_NAMED, DeviceFlag, options_of, print_alternative
from motet.artifact.schema import Alternative
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import ALTERNATIVES, DEFAULT_DEVICE
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.hal_attributes import ALIASES, DEPRECATED, own_family
from motet.compiler.ir.uses_devices import uses_devices
from motet.compiler.passes.base import ModulePass
from motet.compiler.passes.text import split_words
from motet.compiler.placement.default_device import default_device
from motet.compiler.placement.read_devices import declarations, declare, declared_name
from motet.compiler.placement.resolve_aliases import resolve_alias
from motet.compiler.placement.verify_devices import mentioned
from motet.compiler.targets.device_flags import parse_device_flags
from motet.compiler.targets.families import HOST, broken_families, driver_options, families, families_with_code
from motet.errors import CompileError, OptionError

_log = logging.getLogger("motet")

Assigned = Sequence[tuple[DeviceFlag, list[Alternative]]]  # flags, and the alternatives that they list

_HOST = Alternative(HOST)


@dataclass(frozen=True)
class AssignDevices(ModulePass):
    """Raises OptionError for flags without effect, CompileError for a default device given by a number out of
    range."""

    name = "assign-devices"
    flags: tuple[DeviceFlag, ...] = ()
    used: frozenset[str] | None = None  # if given, names other than these and the program's are refused

    @classmethod
    def parse(cls, options: str) -> Self:
        """The options are the texts of `--device`, separated by spaces."""
        return cls(parse_device_flags(split_words(options)))

    def run(self, module: ir.Module) -> None:
        flags = self.flags
        assigned = [(flag, alternatives(flag)) for flag in flags]
        declared = {declared_name(operation): operation for operation in declarations(module)}
        if any(flag.name for flag in flags):
            if self.used is not None:
                _expect_used(module, declared, assigned, self.used)
            _by_name(module, declared, assigned)
        elif declared and len(flags) == 1 and flags[0].uri:
            _fill_others(declared, assigned[0])
        elif declared:
            if [filled for _, filled in assigned] != [[_HOST]]:
                _fill(module, declared, assigned)
        elif not _is_plain(flags) or uses_devices(module):
            for number, (_, filled) in enumerate(assigned):
                _add(module, f"__device_{number}", filled)
        elif flags:
            _expect_code(flags[0], assigned[0][1][0].family)
        _number_default(module)


def _expect_code(flag: DeviceFlag, family: str) -> None:
    """Refuses the only device of a program if there is no code generator for it."""
    known = families_with_code()
    if family not in known:
        raise OptionError(
            f"device '{flag.expression}': no code can be made for {family}; available: {', '.join(known)}"
        )


def _expect_used(
    module: ir.Module, declared: Mapping[str, ir.Operation], assigned: Assigned, used: frozenset[str]
) -> None:
    """Refuses a device that the program neither declares nor names, and that no other falls back to. A program that
    declares none takes all of its devices from flags: those that it does not name, except the first, which is the
    default one, are a warning."""
    named = [name for operation in all_operations(module) for _, name in mentioned(operation)]
    if not declared and not named:
        return
    fallbacks = [one.fallback for _, filled in assigned for one in filled if one.fallback]
    default = [] if declared else [assigned[0][0].name]
    for flag, _ in assigned:
        if flag.name not in {"", *declared, *named, *fallbacks, *used, *default}:
            available = ", ".join(dict.fromkeys([*declared, *named])) or "none"
            message = f"device '{flag.name}': the program has no device of that name; available: {available}"
            if declared:
                raise OptionError(message)
            _log.warning("%s", message)


def alternatives(flag: DeviceFlag) -> list[Alternative]:
    """The alternatives that a flag lists. Raises OptionError for unknown families."""
    return [_alternative(flag, one) for one in flag.alternatives]


def _alternative(flag: DeviceFlag, given: Alternative) -> Alternative:
    if given.fallback:
        return given
    known = {*ALIASES, *DEPRECATED, *families()}
    if given.family and given.family not in known:
        if (reason := broken_families().get(given.family)) is not None:
            raise OptionError(f"device '{flag.name or flag.expression}': {reason}")
        raise OptionError(
            f"device '{flag.name or flag.expression}': {given.family} is no family of devices; "
            f"available: {', '.join(families_with_code())}; or @ and the name of another device"
        )
    if given.family in DEPRECATED:
        _log.warning("device name '%s' is deprecated; write '%s'", given.family, DEPRECATED[given.family])
    named = resolve_alias(given)
    return structs.replace(named, options=driver_options(named.family, options_of(given)))


def _is_plain(flags: Sequence[DeviceFlag]) -> bool:
    """Whether flags only name the family that the program is for."""
    if len(flags) != 1:
        return not flags
    only = flags[0].alternatives
    return (
        len(only) == 1 and not only[0].fallback and only[0].ordinal is None
        and not driver_options(own_family(only[0].family), options_of(only[0]))
    )


def _by_name(module: ir.Module, declared: dict[str, ir.Operation], assigned: Assigned) -> None:
    others = declared.copy()
    for flag, filled in assigned:
        if flag.name in declared:
            _replace(others.pop(flag.name), flag, filled)
        elif flag.name:
            _add(module, flag.name, filled)
    for one in assigned:
        if not one[0].name:
            _fill_others(others, one)


def _fill_others(others: Mapping[str, ir.Operation], assigned: tuple[DeviceFlag, list[Alternative]]) -> None:
    """Fills the devices that no flag names with one flag's alternatives."""
    flag, filled = assigned
    if not others:
        raise OptionError(f"device '{flag.uri or flag.expression}': {ALL_NAMED}")
    for name, declaration in others.items():
        _expect_other(name, filled)
        _replace(declaration, flag, filled)


def _expect_other(name: str, filled: Sequence[Alternative]) -> None:
    if any(one.fallback == name for one in filled):
        raise OptionError(f"device '@{name}': it would be filled with itself; name the flag that it belongs to")


def _fill(module: ir.Module, declared: dict[str, ir.Operation], assigned: Assigned) -> None:
    _number_default(module)
    first = default_device(module)
    names = sorted(declared, key=lambda name: name != first)
    if len(assigned) > len(names):
        flag = assigned[len(names)][0]
        extra = flag.uri or flag.expression
        raise OptionError(
            f"device '{extra}': the program has only {', '.join(names)}; expected at most {len(names)} flags without "
            f"names, or names: NAME={extra}"
        )
    for name, (flag, filled) in zip(names, assigned, strict=False):
        _expect_other(name, filled)
        _replace(declared[name], flag, filled)


def _replace(declaration: ir.Operation, flag: DeviceFlag, filled: list[Alternative]) -> None:
    """A physical device replaces all alternatives but fallbacks, which the program runs on if it is lost."""
    kept = [str(ir.StringAttr(one).value) for one in ir.ArrayAttr(declaration.attributes[ALTERNATIVES])]
    texts = [*map(print_alternative, filled), *(one for one in kept if flag.uri and one.startswith("@"))]
    declaration.attributes[ALTERNATIVES] = ir.ArrayAttr.get(list(map(ir.StringAttr.get, texts)))


def _add(module: ir.Module, name: str, filled: list[Alternative]) -> None:
    """Adds a device after the existing ones, before all other operations."""
    there = declarations(module)
    point = ir.InsertionPoint.after(there[-1]) if there else ir.InsertionPoint.at_block_begin(module.body)
    declare(name, filled, point, module.operation.location)


def _number_default(module: ir.Module) -> None:
    """Replaces a default device given by number by its name."""
    attributes = module.operation.attributes
    value = attributes.get(DEFAULT_DEVICE)
    if not isinstance(value, ir.IntegerAttr):
        return
    number: int = value.value
    names = [declared_name(operation) for operation in declarations(module)]
    if not 0 <= number < len(names):
        there = ", ".join(names) or "no device"
        raise CompileError(
            f"default device {number}: expected a number from 0 to {len(names) - 1}, or a name; there is {there}"
            if names else f"default device {number}: the program declares no device; give --device NAME=…",
            locate(module.operation.location),
        )
    attributes[DEFAULT_DEVICE] = ir.StringAttr.get(names[number])
