"""The CPU of this machine, in LLVM's terms."""

from __future__ import annotations

import re

import llvmlite.binding as llvm

from motet.cpu_features import max_level, up_to


def host_processor() -> tuple[str, frozenset[str]]:
    """LLVM's name for this CPU, and its features, up to the level in `MOTET_MAX_CPU`, if it is set."""
    highest = max_level()
    found = frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
    if highest is None:
        return llvm.get_host_cpu_name(), found
    return re.sub(r"(?<=v4)-.*", "", highest), up_to(highest, found)  # LLVM knows the levels v2, v3 and v4


def host_triple() -> str:
    return llvm.get_process_triple()
