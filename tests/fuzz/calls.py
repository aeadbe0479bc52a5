"""The calls of a program: right ones with several extents and values, and as many that are wrong."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tests.fuzz.dtypes import DTYPES
from tests.fuzz.graph import Array, Graph, Input
from tests.fuzz.values import draw_values

Feeds = dict[str, Array]
SHARED_NAME = "extents that share a name differ"
LARGEST = 1 << 20  # elements of an input
OTHER_EXTENTS = (0, 1, 2, 3, 7, 8, 15, 17, 33)


@dataclass(frozen=True)
class Call:
    """`arrays` in the order of the inputs; `wrong` says what is wrong with them, '' for a right call."""

    arrays: tuple[Array, ...]
    wrong: str = ""


def feeds(graph: Graph, number: int, symbols: Mapping[str, int]) -> Feeds:
    """The inputs of call `number`, with these values of the dynamic extents."""
    return {i.name: _values(graph, i, number, i.concrete(symbols)) for i in graph.inputs}


def is_large(graph: Graph, symbols: Mapping[str, int]) -> bool:
    """Whether inputs with these extents are too large to try."""
    return any(math.prod(i.concrete(symbols)) > LARGEST for i in graph.inputs)


def _values(graph: Graph, entry: Input, number: int, shape: tuple[int, ...]) -> Array:
    seed = zlib.crc32(f"{graph.seed} {entry.name} {number} {shape}".encode())
    return draw_values(np.random.default_rng(seed), entry.dtype, shape, entry.low, entry.high)


def extents_of_call(graph: Graph, number: int) -> dict[str, int]:
    """The dynamic extents of call `number`: the first is as the graph was drawn."""
    if number == 0:
        return dict(graph.symbols)
    rng = random.Random(f"extents {graph.seed} {number}")
    return {name: rng.choice(OTHER_EXTENTS) for name in graph.symbols}


def laid_out(arrays: Sequence[Array], seed: int) -> list[Array]:
    """The same arrays, some in other orders of memory, with gaps, or read-only: none of it may matter."""
    rng = random.Random(f"layout {seed}")
    found: list[Array] = []
    for array in arrays:
        kind = rng.choice(("", "", "fortran", "gaps", "backwards", "read-only", "unaligned"))
        if kind == "fortran" and array.ndim:
            array = np.asfortranarray(array)
        elif kind == "gaps" and array.ndim:
            wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
            wide[..., 1::2] = array
            array = wide[..., 1::2]
        elif kind == "backwards" and array.ndim:
            array = np.ascontiguousarray(array[::-1])[::-1]
        elif kind == "read-only":
            array = array.copy()
            array.setflags(write=False)
        elif kind == "unaligned":
            raw = np.zeros(array.nbytes + 1, np.uint8)
            raw[1:] = np.frombuffer(array.tobytes(), np.uint8)
            array = raw[1:].view(array.dtype).reshape(array.shape)
        found.append(array)
    return found


def wrong_calls(inputs: Sequence[Input], arrays: Sequence[Array], seed: int) -> Iterator[Call]:
    """Calls that must be refused, whatever the program: one thing is wrong with each."""
    rng = random.Random(f"wrong {seed}")
    yield Call(tuple(arrays)[:-1], "an argument too few") if arrays else Call((np.zeros(1),), "an argument too many")
    yield Call((*arrays, np.zeros(3, np.float32)), "an argument too many")
    for number, (entry, array) in enumerate(zip(inputs, arrays, strict=True)):
        for wrong, other in _wrong_arrays(rng, entry, array):
            changed = list(arrays)
            changed[number] = other
            yield Call(tuple(changed), f"argument {number} ({entry.name}): {wrong}")


_SIGNLESS = ("iu", "ui")  # a signless integer takes either sign


def _wrong_arrays(rng: random.Random, entry: Input, array: Array) -> Iterator[tuple[str, Array]]:
    static = [axis for axis, extent in enumerate(entry.shape) if not isinstance(extent, str)]
    if static:
        axis = rng.choice(static)
        extent = rng.choice([e for e in (0, 1, array.shape[axis] + 1, array.shape[axis] - 1, 2 * array.shape[axis])
                             if e >= 0 and e != array.shape[axis]])
        shape = (*array.shape[:axis], extent, *array.shape[axis + 1 :])
        yield f"extent {extent} of axis {axis}", np.zeros(shape, array.dtype)
    if rng.random() < 0.5:
        yield "an axis more", array[None]
    elif array.ndim:
        yield "an axis less", np.zeros(array.shape[1:], array.dtype)
    size = array.dtype.itemsize
    others = [kind for kind in DTYPES.values() if kind != array.dtype]
    kinds = [kind for kind in others if kind.itemsize != size or kind.kind + array.dtype.kind not in _SIGNLESS]
    kind = rng.choice(kinds)
    yield f"dtype {kind}", np.zeros(array.shape, kind)
    if size > 1 and array.dtype.isbuiltin == 1 and rng.random() < 0.3:
        yield "the other byte order", array.astype(array.dtype.newbyteorder())
    named = [axis for axis, extent in enumerate(entry.shape) if isinstance(extent, str)]
    repeated = [axis for axis in named if entry.shape.count(entry.shape[axis]) > 1]
    if repeated:
        axis = rng.choice(repeated)
        shape = (*array.shape[:axis], array.shape[axis] + 1, *array.shape[axis + 1 :])
        yield f"{SHARED_NAME} in axis {axis}", np.zeros(shape, array.dtype)
