"""Registers, spills and shared memory of a kernel's launches on GPUs, from the compiler's facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.lab.subject import KernelSubject

NAMES = ("registers", "spills", "shared")


def counts(artifact: Artifact, subject: KernelSubject, wanted: Sequence[str]) -> dict[str, float | str]:
    """The most of any launch of the kernel, in registers and bytes per thread, and bytes per block."""
    names = [name for name in NAMES if name in wanted]
    if not names:
        return {}
    from motet.tools.inspect import launch_facts

    facts = [
        fact for variant in artifact.manifest.variants for fact in launch_facts(artifact, variant)
        if str(fact["launch"]).startswith(subject.listed.name)
    ]
    missing = f"not available: not a fact of {subject.program.target.family} code"
    return {name: max((float(fact[name]) for fact in facts if name in fact), default=missing) for name in names}
