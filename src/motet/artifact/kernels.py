"""What is known of the kernels of an artifact, found by the symbols that they are dispatched as."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from motet.artifact.schema import KernelInfo, Variant


class KernelTable:
    """The kernels of some variants. A kernel is dispatched as symbols that begin with its name, one for each of its
    phases. Kernels that differ in nothing but their name share symbols, and so also what is known of them.

    The manifest counts the work of a kernel with dynamic extents for guessed ones. Here its operations and bytes are 0,
    which stands for unknown, so that no rate is calculated from a guess."""

    def __init__(self, variants: Sequence[Variant]) -> None:
        known = [kernel for variant in variants for kernel in variant.kernels]
        self._known = sorted(known, key=lambda kernel: len(kernel.name), reverse=True)
        self._found: dict[str, KernelInfo | None] = {}
        guessed = {found.name for symbol in _of_dynamic_extents(variants) if (found := self._search(symbol))}
        self._known = [
            msgspec.structs.replace(kernel, flops=0, bytes=0) if kernel.name in guessed else kernel
            for kernel in self._known
        ]

    @property
    def flops(self) -> int:
        """Operations of all kernels once, those of dynamic extents left out."""
        return sum(kernel.flops for kernel in self._known)

    def find(self, symbol: str) -> KernelInfo | None:
        if symbol not in self._found:
            self._found[symbol] = self._search(symbol)
        return self._found[symbol]

    def _search(self, symbol: str) -> KernelInfo | None:
        for kernel in self._known:
            if re.match(re.escape(kernel.name) + r"(?![0-9A-Za-z])", symbol):
                return kernel
        return None


def _of_dynamic_extents(variants: Sequence[Variant]) -> set[str]:
    """The symbols of kernels that are told extents when they are launched."""
    schedules = [schedule for variant in variants for schedule in variant.schedules.values()]
    return {command.kernel for schedule in schedules for command in schedule.commands if command.sizes}
