"""How forms of kernels are chosen that have several: by what was measured before, else in the compiler's own order.

    --option schedules=FILE    those that FILE says, of any kernel and target (`given.py`)
    --option tuning=FILE       the fastest that FILE knows, where it knows a kernel
    --option tune=candidates   the artifact holds the best few forms of each, for `motet tune` where the device is
    --option tune=measure      they are measured on this machine's device at once

Products may also be left to a library of the device's maker (`artifact/library.py`), before the generated kernel:

    --option library=tuned     where it was measured to be faster; and it is among the candidates
    --option library=cublaslt  wherever it has words for a product
    --option library=none      nowhere
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
    """`most` is how many forms of a kernel are kept; `tunings` is what is known of them; `library` says when a library
    takes the place of a kernel. `keeps` says that compiled kernels are taken from the cache, and kept there.
    `schedules` are those that the user gives."""

    most: int = 1
    tunings: Tunings = field(default_factory=Tunings)
    library: Library = "tuned"
    keeps: bool = False
    schedules: GivenSchedules = NO_SCHEDULES

    def ordered(self, program: TritonProgram, target: GpuTarget) -> TritonProgram:
        """`program` with the form first that is known to be fastest, and with the library's call that is to run."""
        found = self.tunings.find(program.key, f"{target.family}:{target.name}") if program.key else None
        forms = sorted(program.forms, key=lambda form: form.label != found.form) if found else program.forms
        offered = None if self.library == "none" else program.library
        algorithm = found.library if found else None
        taken = self.library == "cublaslt" or algorithm is not None
        call = structs.replace(offered, algorithm=algorithm) if offered is not None and taken else None
        return replace(program, forms=tuple(forms), library=offered, call=call)


DEFAULT = Choice()
