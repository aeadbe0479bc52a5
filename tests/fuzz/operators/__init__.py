"""Operators by family. Who imports the registry from here has it filled."""

from __future__ import annotations

from tests.fuzz.operators import (
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
from tests.fuzz.registry import DRAWS, MEANINGS, evaluate

FAMILIES = (elementwise, generic, indexing, movement, norms, ordering, products, quantised, reductions, windows)

__all__ = ["DRAWS", "FAMILIES", "MEANINGS", "evaluate"]
