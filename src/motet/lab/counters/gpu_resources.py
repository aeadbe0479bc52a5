"""Registers, spills, shared memory, occupancy and bytes of a kernel's launches on GPUs, from the compiler's facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.lab.subject import KernelSubject

_FACTS = ("registers", "spills", "shared")
NAMES = (*_FACTS, "occupancy", "bytes")


@dataclass(frozen=True)
class SmLimits:
    """The warps, blocks and bytes of shared memory that an SM holds at a time."""

    warps: int
    blocks: int
    shared: int


# By compute capability. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
_SMS = {
    "75": SmLimits(32, 16, 64 << 10), "80": SmLimits(64, 32, 164 << 10), "86": SmLimits(48, 16, 100 << 10),
    "89": SmLimits(48, 24, 100 << 10), "90": SmLimits(64, 32, 228 << 10), "100": SmLimits(64, 32, 228 << 10),
    "120": SmLimits(48, 32, 100 << 10),
}
_REGISTERS, _UNIT = 64 << 10, 256  # of an SM, and those that are allocated together
_RESERVED = 1 << 10  # bytes of shared memory that each block takes


def counts(artifact: Artifact, subject: KernelSubject, wanted: Sequence[str]) -> dict[str, float | str]:
    """The most of any launch of the kernel, in registers and bytes per thread, and bytes per block; the least
    occupancy, as a share of an SM's warps; the bytes that the kernel reads and writes at least."""
    names = [name for name in NAMES if name in wanted]
    if not names:
        return {}
    from motet.artifact.launch_facts import launch_facts

    facts = [
        fact for variant in artifact.manifest.variants for fact in launch_facts(artifact, variant)
        if str(fact["launch"]).startswith(subject.listed.name)
    ]
    missing = f"not available: not a fact of {subject.program.target.family} code"
    found: dict[str, float | str] = {
        name: max((float(fact[name]) for fact in facts if name in fact), default=missing)
        for name in names if name in _FACTS
    }
    if "occupancy" in names:
        shares = [occupancy(fact, subject.program.target.name) for fact in facts]
        found["occupancy"] = min((share for share in shares if share is not None), default=missing)
    if "bytes" in names:
        found["bytes"] = float(subject.listed.bytes) or "not available: they are not counted"
    return found


def occupancy(fact: Mapping[str, Any], target: str) -> float | None:
    """The share of an SM's warps that can run blocks of a launch at a time; None for an unknown processor."""
    match = re.match(r"sm_(\d+)", target)
    limits = _SMS.get(match[1]) if match is not None else None
    if limits is None or not fact.get("threads"):
        return None
    warps = -(-int(fact["threads"]) // 32)
    registers = -(-int(fact.get("registers", 0)) * 32 // _UNIT) * _UNIT * warps
    blocks = min(
        limits.blocks, limits.warps // warps, _REGISTERS // registers if registers else limits.blocks,
        limits.shared // (int(fact.get("shared", 0)) + _RESERVED),
    )
    return blocks * warps / limits.warps
