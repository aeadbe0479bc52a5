"""linalg.generic with random indexing maps, which MLIR alone can say.

`maps` are one for each operand, the result's last: of each axis what it is of the loops, as [[loop, factor], …]; the
result's axes are loops. `body` says how operands are joined and, along loops that the result lacks, how many become
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tests.fuzz.dtypes import DTYPES, FLOATS, SIGNED, is_float
from tests.fuzz.operators.reductions import extreme
from tests.fuzz.registry import Attributes, Operands, Rejected, drawn, given, meaning
from tests.fuzz.tracked import Array, Invalid, Tracked, add, contract, exact, extremum, multiply, total

if TYPE_CHECKING:
    from tests.fuzz.drawing import Drawer

JOINS = ("mul", "add", "max", "first")
FOLDS = ("add", "max", "add")


@meaning("linalg.generic")
def _generic(attributes: Attributes, operands: Operands) -> list[Tracked]:
    extents: list[int] = attributes["extents"]
    maps: list[Any] = attributes["maps"]
    given_operands = [given(operand) for operand in operands]
    whole = [_over_loops(x, one, extents) for x, one in zip(given_operands, maps, strict=False)]
    kept = [axis[0][0] for axis in maps[-1]]
    folded = tuple(loop for loop in range(len(extents)) if loop not in kept)
    join, fold = attributes["join"], attributes["fold"]
    joins = {"mul": multiply, "add": add, "max": lambda a, b: extremum(a, b, True), "first": _first}
    dtype = whole[0].dtype
    if join == "mul" and len(whole) == 2 and folded and fold == "add":
        terms = int(np.prod([extents[loop] for loop in folded]))
        found = contract(whole[0], whole[1], lambda a, b: np.asarray((a * b).sum(axis=folded, dtype=a.dtype)), terms)
    else:
        found = whole[0]
        for other in whole[1:]:
            found = joins[join](found.as_operand(), other)
        if folded and fold == "add":
            found = total(found.as_operand(), folded, False)
        elif folded:
            least = exact(np.array(_least(dtype), DTYPES[dtype]), dtype)
            empty = any(extents[loop] == 0 for loop in folded)
            shape = tuple(e for loop, e in enumerate(extents) if loop not in folded)
            none = least.moved(lambda array: np.broadcast_to(array, shape))
            found = none if empty else extremum(extreme(found.as_operand(), folded, False, True), least, True)
    return [found.moved(lambda array: np.transpose(array, _to_order(kept)))]


def _to_order(kept: list[int]) -> list[int]:
    """Where each axis of the result is among the loops that are kept, which are in order."""
    ordered = sorted(kept)
    return [ordered.index(loop) for loop in kept]


def _first(a: Tracked, b: Tracked) -> Tracked:
    return a


def _least(dtype: str) -> float | int:
    return -1000.0 if is_float(dtype) else -100


def _over_loops(x: Tracked, axes: list[list[list[int]]], extents: list[int]) -> Tracked:
    """The element that each turn of the loops reads."""
    index: list[Array] = []
    for axis, terms in enumerate(axes):
        place = np.zeros([1] * len(extents), np.int64)
        for loop, factor in terms:
            shape = [-1 if k == loop else 1 for k in range(len(extents))]
            place = place + factor * np.arange(extents[loop]).reshape(shape)
        if place.size and (place.max() >= x.shape[axis] or place.min() < 0):
            raise Invalid("a map leads outside")
        index.append(place)
    where = tuple(index)

    def read(array: Array) -> Array:
        found = array[where] if where else array.reshape([1] * len(extents))
        return np.broadcast_to(found, extents)

    return x.moved(read)


@drawn("generic", "linalg.generic")
def _draw_generic(d: Drawer) -> None:
    if d.operators is None or "linalg.generic" not in d.operators:
        raise Rejected("of MLIR alone")
    extents = [d.rng.choice((1, 2, 3, 4, 5, 7, 8, 9, 16, 17)) for _ in range(d.rng.randint(1, 5))]
    while np.prod(extents) > 30000:
        extents[d.rng.randrange(len(extents))] = 2
    dtype = d.any_of((*FLOATS, *SIGNED))
    loops = list(range(len(extents)))
    kept = [loop for loop in loops if d.rng.random() < 0.65]
    d.rng.shuffle(kept)
    count = d.rng.choice((1, 2, 2, 3))
    maps, inputs = [], []
    for number in range(count):
        mixed = number > 0 or count == 1
        axes = _axes(d, loops, extents) if mixed else [[[loop, 1]] for loop in d.rng.sample(loops, len(loops))]
        shape = [1 + sum(factor * (extents[loop] - 1) for loop, factor in terms) for terms in axes]
        if np.prod(shape, initial=1) > 20000:
            raise Rejected("too large")
        found = [n for n in d.values() if d.shape(n) == tuple(shape) and d.dtype(n) == dtype]
        inputs.append(d.rng.choice(found) if found and d.rng.random() < 0.5 else d.fresh(dtype, shape, static=True))
        maps.append(axes)
    covered = {loop for axes in maps for terms in axes for loop, _ in terms}
    if covered != set(loops):
        axes = [[[loop, 1]] for loop in loops]
        inputs[0] = d.fresh(dtype, extents, static=True)
        maps[0] = axes
    maps.append([[[loop, 1]] for loop in kept])
    d.node("linalg.generic", inputs, maps=maps, extents=extents, join=d.rng.choice(JOINS), fold=d.rng.choice(FOLDS))


def _axes(d: Drawer, loops: list[int], extents: list[int]) -> list[list[list[int]]]:
    """Axes of an operand: loops in any order, some sums of two as in convolutions, or with a stride."""
    chosen = d.rng.sample(loops, d.rng.randint(0 if len(loops) > 1 else 1, len(loops)))
    axes: list[list[list[int]]] = []
    while chosen:
        loop = chosen.pop()
        if chosen and d.rng.random() < 0.2:
            axes.append([[loop, d.rng.choice((1, 1, 2))], [chosen.pop(), d.rng.choice((1, 1, 3))]])
        else:
            axes.append([[loop, d.rng.choice((1, 1, 1, 1, 2))]])
    return axes
