"""The family: the host's CPU levels, under a separate name."""

from __future__ import annotations

from motet.compiler.targets.cpu import AARCH64, X86_64_V3, X86_64_V4
from motet.compiler.targets.family import Family

SANDBOX = Family(
    "sandbox", {target.name: target for target in (X86_64_V4, X86_64_V3, AARCH64)}, (X86_64_V4.name, X86_64_V3.name),
    options=("cores", "memory"),  # the driver's options, for programs that request them: sandbox{cores=4}
)
