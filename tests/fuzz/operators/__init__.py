"""Operators by family: importing this fills the registry."""

from __future__ import annotations

from tests.fuzz.operators import (  # noqa: F401
    elementwise,
    generic,
    indexing,
    movement,
    norms,
    ordering,
    products,
    quantised,
    reductions,
    windows,
)
