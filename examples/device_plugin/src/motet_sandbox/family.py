"""What code is made for: the processors that the host may have, under a family of its own."""

from __future__ import annotations

from motet.compiler.targets.cpu import AARCH64, X86_64_V3, X86_64_V4
from motet.compiler.targets.family import Family

SANDBOX = Family(
    "sandbox", {target.name: target for target in (X86_64_V4, X86_64_V3, AARCH64)}, (X86_64_V4.name, X86_64_V3.name),
    options=("cores", "memory"),  # what the driver reads, for programs that ask for it: sandbox{cores=4}
)
