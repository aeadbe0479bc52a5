"""IREE's names of passes over devices, each with the passes of Motet that do its work.

    iree-hal-assign-target-devices{targetDevices=local,cuda}    →    assign-devices{local cuda}
    iree-hal-device-assignment-pipeline{target-devices=a=local} →    materialize-devices, …, verify-devices
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from motet.compiler.ir._mlir import ir
from motet.compiler.placement.annotate_affinities import AnnotateAffinities
from motet.compiler.placement.assign_devices import AssignDevices
from motet.compiler.placement.materialize_devices import MaterializeDevices
from motet.compiler.placement.resolve_aliases import ResolveAliases
from motet.compiler.placement.resolve_globals import ResolveGlobals
from motet.compiler.placement.resolve_promises import ResolvePromises
from motet.compiler.placement.resolve_states import ResolveStates
from motet.compiler.placement.verify_devices import VerifyDevices
from motet.errors import OptionError

_DEVICES = ("targetDevices", "target-devices", "targetBackends", "legacy-target-backends")
_OPTION = re.compile(r"\s*([A-Za-z-]+)=((?:[^\s\"'{<]|\"[^\"]*\"|'[^']*'|\{[^}]*\}|<(?:[^<>]|<[^<>]*>)*>)*)")


class Pass(Protocol):
    """Changes a module in place. Raises CompileError for what it cannot take."""

    def run(self, module: ir.Module) -> None: ...


@dataclass(frozen=True)
class PassSequence:
    """Passes one after the other."""

    passes: tuple[Pass, ...]

    def run(self, module: ir.Module) -> None:
        for each in self.passes:
            each.run(module)


def _without_options(name: str, passes: Sequence[Pass]) -> Callable[[str], Pass]:
    def factory(options: str) -> Pass:
        _devices(name, options, ())
        return PassSequence(tuple(passes))

    return factory


def _assignment(name: str) -> Callable[[str], Pass]:
    return lambda options: AssignDevices(_devices(name, options, _DEVICES))


def _pipeline(options: str) -> Pass:
    devices = _devices("iree-hal-device-assignment-pipeline", options, _DEVICES)
    return PassSequence((
        MaterializeDevices(), ResolvePromises(), ResolveStates(), ResolveGlobals(), AssignDevices(devices),
        ResolveAliases(), VerifyDevices(),
    ))


def _devices(name: str, options: str, known: Sequence[str]) -> tuple[str, ...]:
    """The flags that the options of a pass list. Raises OptionError for options that say something else."""
    found: list[str] = []
    position = 0
    while options[position:].strip():
        match = _OPTION.match(options, position)
        if match is None or match[1] not in known:
            there = options[position:].strip() if match is None else match[1]
            expected = f"expected one of {', '.join(known)}" if known else "it takes no options"
            raise OptionError(f"pass {name}: option {there}: {expected}")
        found += [one for one in _split(match[2]) if one]
        position = match.end()
    return tuple(found)


def _split(text: str) -> list[str]:
    """The parts between commas that no bracket encloses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "{[<(") - (character in "}]>)")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


FOREIGN_PASSES: Mapping[str, Callable[[str], Pass]] = MappingProxyType({
    **{
        name: _without_options(name, passes)
        for name, passes in (
            ("iree-hal-materialize-target-devices", (MaterializeDevices(), ResolveStates(), ResolveGlobals())),
            ("iree-hal-resolve-device-promises", (ResolvePromises(),)),
            ("iree-hal-resolve-device-aliases", (ResolveAliases(),)),
            ("iree-hal-verify-devices", (VerifyDevices(),)),
            ("iree-stream-annotate-affinities", (AnnotateAffinities(),)),
        )
    },
    **{
        name: _assignment(name)
        for name in ("iree-hal-assign-target-devices", "iree-hal-assign-legacy-target-devices")
    },
    "iree-hal-device-assignment-pipeline": _pipeline,
})
