"""The family: one target, this machine's CPU by its C compiler."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from motet.compiler.targets.family import Family


@dataclass(frozen=True)
class AbacusTarget:
    """A `motet.compiler.targets.family.Target`."""

    name: str
    family: str
    triple: str
    requires: tuple[str, ...] = ()
    base: str = ""


ABACUS = Family(
    "abacus", {"c": AbacusTarget("c", "abacus", f"{platform.machine()}-unknown-linux-gnu")}, ("c",), codegen="abacus"
)
