"""Whether the compiler verifies its intermediate results: kernels after every stage, and finished schedules.

Tests enable this; users may enable it to distinguish a defect of the compiler from one of their program.
"""

from __future__ import annotations

import os

VARIABLE = "MOTET_CHECK"  # environment variable


def check_wanted() -> bool:
    return os.environ.get(VARIABLE, "") not in ("", "0")
