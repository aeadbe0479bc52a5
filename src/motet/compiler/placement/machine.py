"""The devices of a program as a machine for the cost model: their rates, and the costs of transfers between them.

Which device a program's device will be bound to is unknown when compiling: it is assumed to be of its first family with
a code generator. All devices of the host share one processor and one memory; devices of other families are assumed to
be distinct unless the program numbers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from motet.artifact.schema import Link, LogicalDevice
from motet.compiler.placement.families import device_families
from motet.compiler.placement.search.problem import Machine
from motet.compiler.targets.families import families
from motet.compiler.targets.rates import Rates, RateTable, rate_table

HOST = "host"


def rates_of_families(
    given: Mapping[str, Mapping[str, float | bool]] | None = None, targets: Sequence[str] = ()
) -> RateTable:
    """The rates of all families, overridden by a file of rates. If the targets of a family differ, the first one among
    the full names `targets` counts."""
    known = families()
    own = {name: family.rates for name, family in known.items() if family.rates is not None}
    for target in reversed(targets):
        family, _, name = target.partition(":")
        if family in known and (rates := known[family].target_rates.get(name.partition("/")[0])) is not None:
            own[family] = rates
    return rate_table(own, given, frozenset(name for name, family in known.items() if family.targets))


@dataclass(frozen=True)
class ProgramMachine:
    """The places are the program's devices, in order, followed by the host's memory, which does not compute and holds
    the callers' arrays."""

    devices: Sequence[LogicalDevice]
    links: Sequence[Link]
    table: RateTable

    @cached_property
    def rates(self) -> tuple[Rates, ...]:
        return tuple(self.table.of(self._family(device)) for device in self.devices)

    @cached_property
    def usable(self) -> tuple[int, ...]:
        """The places with a code generator; all places if there are none."""
        found = tuple(number for number, device in enumerate(self.devices) if self._coded(device))
        return found or tuple(range(len(self.devices)))

    @property
    def memory(self) -> int:
        """The number of the place that is the host's memory."""
        return len(self.devices)

    @cached_property
    def machine(self) -> Machine:
        places = range(len(self.devices) + 1)
        pairs = [[self._move(source, target) for target in places] for source in places]
        return Machine(
            self._processors, tuple(tuple(latency for latency, _ in row) for row in pairs),
            tuple(tuple(per_byte for _, per_byte in row) for row in pairs),
        )

    @cached_property
    def cut_machine(self) -> Machine:
        """The machine in which a transfer between two devices includes the submission at the target, because each
        such transfer adds a submission."""
        plain, computing = self.machine, range(len(self.devices))
        latency = [list(row) for row in plain.latency]
        for source in computing:
            for target in computing:
                if source != target and self._processors[source] != self._processors[target]:
                    latency[source][target] += self.rates[target].submit
        return Machine(plain.processors, tuple(map(tuple, latency)), plain.per_byte)

    @cached_property
    def _processors(self) -> tuple[int | None, ...]:
        numbers: dict[tuple[str, int | str], int] = {}
        return (*(numbers.setdefault(self._physical(device), len(numbers)) for device in self.devices), None)

    def _family(self, device: LogicalDevice) -> str:
        found = device_families(self.devices, device.name)
        return next(iter(self._coded(device) or found), "")

    def _coded(self, device: LogicalDevice) -> list[str]:
        return [family for family in device_families(self.devices, device.name) if self.table.has_code(family)]

    def _physical(self, device: LogicalDevice) -> tuple[str, int | str]:
        """A key that is equal for devices of the program that are assumed to be the same physical device."""
        first = next(iter(device.alternatives), None)
        if first is not None and first.fallback:
            other = next((each for each in self.devices if each.name == first.fallback), device)
            if other is not device and not any(item.fallback for item in other.alternatives[:1]):
                return self._physical(other)
        family = self._family(device)
        if family == HOST:
            return family, 0
        return family, device.name if first is None or first.ordinal is None else first.ordinal

    def _move(self, source: int, target: int) -> tuple[float, float]:
        """Seconds, and seconds per byte, of a transfer between two places, through the host's memory."""
        if source == target or (
            self.memory not in (source, target) and self._processors[source] == self._processors[target]
        ):
            return 0.0, 0.0
        if any(
            (link.transparent_access or link.unified_memory)
            and (self._index(link.source), self._index(link.target)) == (source, target)
            for link in self.links
        ):
            return 0.0, 0.0
        if self.memory not in (source, target):
            families = {self._family(self.devices[number]) for number in (source, target)}
            if len(families) == 1 and (peer := self.rates[source].peer):
                return self.rates[source].latency, 1 / peer
        latency = per_byte = 0.0
        if source != self.memory and not self.rates[source].shared:
            latency, per_byte = self.rates[source].latency, 1 / self.rates[source].download
        if target != self.memory and not self.rates[target].shared:
            latency, per_byte = latency + self.rates[target].latency, per_byte + 1 / self.rates[target].upload
        return latency, per_byte

    def _index(self, name: str) -> int:
        return next((number for number, device in enumerate(self.devices) if device.name == name), -1)
