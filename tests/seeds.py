"""How many random programs a test tries: a third of them or fewer in `make test`, all in `make test-all`."""

from __future__ import annotations

import os
from typing import Any

import pytest

ALL = "MOTET_TEST_ALL"  # environment variable: set where slow tests run


def seeds(count: int) -> list[Any]:
    return [seed if 3 * seed < count else pytest.param(seed, marks=pytest.mark.slow) for seed in range(count)]


def examples(count: int, part: int = 3) -> int:
    """As `max_examples` of hypothesis; one of `part` in `make test`."""
    return count if ALL in os.environ else -(-count // part)
