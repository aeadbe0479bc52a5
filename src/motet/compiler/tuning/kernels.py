"""Chooses among several forms of kernels: by earlier measurements, else in the compiler's order.

    --option schedules=FILE    those in FILE, for any kernel and target (`given.py`)
    --option tuning=FILE       the fastest according to FILE, for kernels that it lists
    --option tune=candidates   the artifact holds the best few forms of each, for `motet tune` on the device's machine
    --option tune=measure      they are measured on this machine's device while compiling

Products may also be left to a vendor's library (`artifact/library.py`) instead of the generated kernel:

    --option library=tuned     if it was measured to be faster; it is also among the candidates
    --option library=cublaslt  wherever it supports a product
    --option library=none      never
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from msgspec import structs

from motet.artifact.kernel_schedules import NO_SCHEDULES, GivenSchedules
from motet.artifact.tunings import Tunings

if TYPE_CHECKING:
    from motet.compiler.codegen.triton.text.program import TritonProgram
    from motet.compiler.targets.gpu import GpuTarget

CANDIDATES = 10
Library = Literal["tuned", "cublaslt", "none"]


@dataclass(frozen=True)
class Choice:
    """`most` is the number of forms kept per kernel; `tunings` are known measurements; `library` tells when a library
    replaces a kernel. `keeps` enables the cache of compiled kernels. `schedules` are given by the user."""

    most: int = 1
    tunings: Tunings = field(default_factory=Tunings)
    library: Library = "tuned"
    keeps: bool = False
    schedules: GivenSchedules = NO_SCHEDULES

    def ordered(self, program: TritonProgram, target: GpuTarget) -> TritonProgram:
        """`program` with its fastest known form first, and with the library call that is to run."""
        found = self.tunings.find(program.key, f"{target.family}:{target.name}") if program.key else None
        forms = sorted(program.forms, key=lambda form: form.label != found.form) if found else program.forms
        offered = None if self.library == "none" else program.library
        algorithm = found.library if found else None
        taken = self.library == "cublaslt" or algorithm is not None
        call = structs.replace(offered, algorithm=algorithm) if offered is not None and taken else None
        return replace(program, forms=tuple(forms), library=offered, call=call)


DEFAULT = Choice()
