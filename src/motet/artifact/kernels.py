"""The kernels of an artifact, indexed by the symbols of their dispatches."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from motet.artifact.schema import KernelInfo, Variant


class KernelTable:
    """The kernels of some variants. A kernel is dispatched as symbols that begin with its name, one for each of its
    phases. Kernels that only differ in their name share symbols and entries.

    The manifest has the work of a kernel with dynamic extents for guessed extents. Here its operations and bytes are 0,
    for unknown, so that no rate is computed from a guess."""

    def __init__(self, variants: Sequence[Variant]) -> None:
        known = [kernel for variant in variants for kernel in variant.kernels]
        self._known = {kernel.name: kernel for kernel in reversed(known)}
        guessed = {found.name for symbol in _of_dynamic_extents(variants) if (found := self.find(symbol))}
        for name in guessed:
            self._known[name] = msgspec.structs.replace(self._known[name], flops=0, bytes=0)

    @property
    def flops(self) -> int:
        """The operations of all kernels, each counted once, without those of dynamic extents."""
        return sum(kernel.flops for kernel in self._known.values())

    def find(self, symbol: str) -> KernelInfo | None:
        ends = (end for end in range(len(symbol), 0, -1) if not symbol[end : end + 1].isalnum())
        return next((self._known[symbol[:end]] for end in ends if symbol[:end] in self._known), None)


def _of_dynamic_extents(variants: Sequence[Variant]) -> set[str]:
    """The symbols of kernels that take sizes when they are launched."""
    schedules = [schedule for variant in variants for schedule in variant.schedules.values()]
    return {command.kernel for schedule in schedules for command in schedule.commands if command.sizes}


def module_of(name: str) -> str:
    """The module of a name in the source, with the separator at its end: `layer1.0.` of `layer1.0.conv2`; "" if it is
    in none."""
    return name[: max(name.rfind("."), name.rfind("/")) + 1]
