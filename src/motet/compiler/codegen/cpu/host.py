"""The CPU of this machine, in LLVM's terms."""

from __future__ import annotations

import llvmlite.binding as llvm


def host_processor() -> tuple[str, frozenset[str]]:
    """LLVM's name for this CPU, and its features."""
    features = llvm.get_host_cpu_features()
    return llvm.get_host_cpu_name(), frozenset(name for name, present in features.items() if present)


def host_triple() -> str:
    return llvm.get_process_triple()
