"""Whole networks with random weights."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.corpus.networks import own, zoo
from benchmarks.corpus.row import Row


def network_rows() -> Sequence[Row]:
    return [*zoo.rows(), *own.rows()]
