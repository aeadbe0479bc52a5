"""IREE's names of passes over devices, mapped to the equivalent passes of Motet.

    iree-hal-assign-target-devices{targetDevices=local,cuda}    →    assign-devices{local cuda}
    iree-hal-device-assignment-pipeline{target-devices=a=local} →    materialize-devices, …, verify-devices
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from motet.compiler.passes.text import split_commas
from motet.errors import OptionError

_DEVICES = ("targetDevices", "target-devices", "targetBackends", "legacy-target-backends")
_OPTION = re.compile(r"\s*([A-Za-z-]+)=((?:[^\s\"'{<]|\"[^\"]*\"|'[^']*'|\{[^}]*\}|<(?:[^<>]|<[^<>]*>)*>)*)")


@dataclass(frozen=True)
class Alias:
    """The passes that are equivalent to a pass of IREE, and its options, whose values are devices: they become the
    options of `assign-devices`."""

    passes: tuple[str, ...]
    options: tuple[str, ...] = ()

    def steps(self, name: str, options: str) -> tuple[str, ...]:
        """The passes for the alias `name` with `options`. Raises OptionError for unknown options."""
        devices = " ".join(_devices(name, options, self.options))
        return tuple(f"{each}{{{devices}}}" if each == "assign-devices" else each for each in self.passes)


def _devices(name: str, options: str, known: Sequence[str]) -> tuple[str, ...]:
    """The device flags in the options of a pass. Raises OptionError for other options."""
    found: list[str] = []
    position = 0
    while options[position:].strip():
        match = _OPTION.match(options, position)
        if match is None or match[1] not in known:
            there = options[position:].strip() if match is None else match[1]
            expected = f"expected one of {', '.join(known)}" if known else "it takes no options"
            raise OptionError(f"pass {name}: option {there}: {expected}")
        found += [one for one in split_commas(match[2]) if one]
        position = match.end()
    return tuple(found)


ALIASES: Mapping[str, Alias] = MappingProxyType({
    "iree-hal-materialize-target-devices": Alias(("materialize-devices", "resolve-states", "resolve-globals")),
    "iree-hal-resolve-device-promises": Alias(("resolve-promises",)),
    "iree-hal-resolve-device-aliases": Alias(("resolve-aliases",)),
    "iree-hal-verify-devices": Alias(("verify-devices",)),
    "iree-stream-annotate-affinities": Alias(("annotate-affinities",)),
    "iree-hal-assign-target-devices": Alias(("assign-devices",), _DEVICES),
    "iree-hal-assign-legacy-target-devices": Alias(("assign-devices",), _DEVICES),
    "iree-hal-device-assignment-pipeline": Alias(
        (
            "materialize-devices", "resolve-promises", "resolve-states", "resolve-globals", "assign-devices",
            "resolve-aliases", "verify-devices",
        ),
        _DEVICES,
    ),
})
