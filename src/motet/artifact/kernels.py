"""What is known of the kernels of an artifact, found by the symbols that they are dispatched as."""

from __future__ import annotations

import re
from collections.abc import Sequence

from motet.artifact.schema import KernelInfo, Variant


class KernelTable:
    """The kernels of some variants. A kernel is dispatched as symbols that begin with its name, one for each of its
    phases. Kernels that differ in nothing but their name share symbols, and so also what is known of them."""

    def __init__(self, variants: Sequence[Variant]) -> None:
        known = [kernel for variant in variants for kernel in variant.kernels]
        self._known = sorted(known, key=lambda kernel: len(kernel.name), reverse=True)
        self._found: dict[str, KernelInfo | None] = {}

    def find(self, symbol: str) -> KernelInfo | None:
        if symbol not in self._found:
            self._found[symbol] = self._search(symbol)
        return self._found[symbol]

    def _search(self, symbol: str) -> KernelInfo | None:
        for kernel in self._known:
            if re.match(re.escape(kernel.name) + r"(?![0-9A-Za-z])", symbol):
                return kernel
        return None
