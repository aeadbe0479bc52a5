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

from dataclasses import dataclass, field
from typing import Literal

from motet.artifact.kernel_schedules import NO_SCHEDULES, GivenSchedules
from motet.artifact.tunings import Tunings

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


DEFAULT = Choice()
