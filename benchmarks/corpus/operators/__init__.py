"""Rows of single operators, by family. Each family also draws rows of random extents."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from benchmarks.corpus.operators import (
    axes,
    convolution,
    language,
    linear,
    lookup,
    pointwise,
    quantised,
    science,
    sequence,
    training,
    vision,
)
from benchmarks.corpus.row import Row

_FAMILIES = (linear, convolution, sequence, pointwise, axes, vision, lookup, science, language, training)


def operator_rows() -> Sequence[Row]:
    """The fixed rows."""
    return [row for family in (*_FAMILIES, quantised) for row in family.rows()]


def fresh_rows(seed: int, count: int) -> Sequence[Row]:
    """`count` rows of odd extents, determined by `seed`."""
    random = Random(seed)
    found: dict[str, Row] = {}
    while len(found) < count:
        row = random.choice(_FAMILIES).fresh(random)
        found[row.name] = row
    return list(found.values())
