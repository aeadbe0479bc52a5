"""Whether what the compiler makes on its way is checked: kernels after every stage, schedules when they are finished.

Tests do so; users may, to tell a defect of the compiler from one of their program.
"""

from __future__ import annotations

import os

VARIABLE = "MOTET_CHECK"  # in the environment


def check_wanted() -> bool:
    return os.environ.get(VARIABLE, "") not in ("", "0")
