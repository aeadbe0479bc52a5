"""Decides whether requests to a model may be joined: its rows must be independent.

The leading extent of all inputs and results must be one dynamic extent that occurs nowhere else in their shapes.
Whether a row of a result depends on that row of the inputs alone is tried when the model is loaded: a batch of random
rows, some of them large and some small, against each row alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from motet.artifact.expressions import show
from motet.errors import MotetError
from motet.runtime.tensors import Array
from motet.serving.model import ServedModel
from motet.serving.protocol import Port

_SCALES = (1.0, 100.0, 0.01, 1.0, 10.0)  # one for each row of a batch
_EXTENTS = (8, 32, 16, 64, 224, 3, 4, 1)  # tried for other dynamic extents until the model accepts them
# What the order of a sum may change, relative to the largest number of the row.
_TOLERANCES = {"f64": 1e-9, "f32": 1e-4, "f16": 1e-2, "bf16": 5e-2}


def why_not_joined(model: ServedModel) -> str | None:
    """Why requests to `model` cannot be joined; None if they can."""
    return _wrong_shapes(model) or _dependent_rows(model)


def _wrong_shapes(model: ServedModel) -> str | None:
    ports = [*model.inputs, *model.results]
    if not model.inputs or not model.results:
        return "it has no inputs or no results"
    symbol = model.inputs[0].spec.shape[0] if model.inputs[0].shape else ""
    if not isinstance(symbol, str) or not symbol:
        return f"the leading extent of {model.inputs[0].name} is not dynamic"
    for port in ports:
        shape = port.spec.shape
        if not shape or shape[0] != symbol:
            given = show(shape[0]) if shape else "none"
            return f"the leading extent of {port.name} is {given}, that of {model.inputs[0].name} {symbol}"
        if any(symbol in _symbols(extent) for extent in shape[1:]):
            return f"{port.name} has {symbol} in a second extent"
        if port.spec.destination is not None:
            return f"{port.name} is written to an input"
    return None


def _symbols(extent: Any) -> set[str]:
    if isinstance(extent, str):
        return {extent}
    return set() if isinstance(extent, int) else _symbols(extent[1]) | _symbols(extent[2])


def _dependent_rows(model: ServedModel) -> str | None:
    random = np.random.default_rng(0)
    reason = "no extents were tried"
    for extents in _choices(model.inputs):
        whole = [_random(port, extents, random) for port in model.inputs]
        try:
            together = model(whole)
        except MotetError as error:
            reason = f"a batch of {len(_SCALES)} random rows is refused: {error}"
            continue
        return _compare(model, whole, together)
    return reason


def _compare(model: ServedModel, whole: Sequence[Array], together: Sequence[Array]) -> str | None:
    for row in range(len(_SCALES)):
        try:
            alone = model([array[row : row + 1] for array in whole])
        except MotetError as error:
            return f"a row of a batch is refused alone: {error}"
        for port, one, all_rows in zip(model.results, alone, together, strict=True):
            if not _close(all_rows[row : row + 1], one, port):
                return f"row {row} of {port.name} differs where the row is computed alone: its rows are not independent"
    return None


def _close(joined: Array, alone: Array, port: Port) -> bool:
    if joined.shape != alone.shape:
        return False
    if port.dtype.kind in "biu":
        return bool(np.array_equal(joined, alone))
    a, b = joined.astype(np.float64), alone.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    tolerance = _TOLERANCES[port.spec.dtype]
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * finite.max(initial=0.0), equal_nan=True))


def _choices(inputs: Sequence[Port]) -> Iterator[dict[str, int]]:
    """Extents for the symbols of trailing dimensions: equal ones first, then combinations, a bounded number."""
    symbols = sorted({name for port in inputs for extent in port.spec.shape[1:] for name in _symbols(extent)})
    yield from (dict.fromkeys(symbols, extent) for extent in _EXTENTS)
    if 1 < len(symbols) <= 2:
        for values in product(_EXTENTS, repeat=len(symbols)):
            yield dict(zip(symbols, values, strict=True))


def _random(port: Port, extents: dict[str, int], random: np.random.Generator) -> Array:
    """A batch of random rows; integers are small, so that they can be indices."""
    trailing = port.spec.shape[1:]
    shape = [len(_SCALES), *(extent if isinstance(extent, int) else extents[str(extent)] for extent in trailing)]
    if port.dtype.kind in "biu":
        return random.integers(0, 2, shape).astype(port.dtype)
    scales = np.reshape(_SCALES, (-1, *[1] * (len(shape) - 1)))
    return (random.standard_normal(shape) * scales).astype(port.dtype)
