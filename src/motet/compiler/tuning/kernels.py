"""How forms of kernels are chosen that have several: by what was measured before, else in the compiler's own order.

    --option tuning=FILE       the fastest that FILE knows, where it knows a kernel
    --option tune=candidates   the artifact holds the best few forms of each, for `motet tune` where the device is
    --option tune=measure      they are measured on this machine's device at once
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from motet.artifact.tunings import Tunings

if TYPE_CHECKING:
    from motet.compiler.codegen.triton.program import Program
    from motet.compiler.targets.gpu import GpuTarget

CANDIDATES = 10


@dataclass(frozen=True)
class Choice:
    """`most` is how many forms of a kernel are kept; `tunings` is what is known of them."""

    most: int = 1
    tunings: Tunings = field(default_factory=Tunings)

    def ordered(self, program: Program, target: GpuTarget) -> Program:
        """`program` with the form first that is known to be fastest."""
        wanted = self.tunings.form_of(program.key, f"{target.family}:{target.name}") if program.key else ""
        forms = sorted(program.forms, key=lambda form: form.label != wanted) if wanted else program.forms
        return replace(program, forms=tuple(forms))


DEFAULT = Choice()
