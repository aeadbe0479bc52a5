"""Whether the compiler checks its own intermediate results: kernels after each stage, and finished schedules.

Tests enable it. Users may enable it to tell a compiler defect from a defect of their program.
"""

from __future__ import annotations

import os

VARIABLE = "MOTET_CHECK"  # environment variable


def check_wanted() -> bool:
    return os.environ.get(VARIABLE, "") not in ("", "0")
