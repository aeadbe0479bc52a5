"""Random loop nests over memrefs: their text in affine's dialect, and what they compute, loop by loop in Python."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

Index = tuple[dict[int, int], int]  # coefficients by dimension, and a constant


@dataclass(frozen=True)
class Store:
    """`array[indices] = sum of loads (times their factors)`, plus what is there already if it accumulates. A load is
    done at a depth of its own, where the body of that loop begins, or beside the store (at the store's depth)."""

    depth: int  # how many of the loops stand around it
    array: str
    indices: tuple[Index, ...]
    loads: tuple[tuple[str, tuple[Index, ...], int, int], ...]
    accumulates: bool


@dataclass(frozen=True)
class Loops:
    """One nest: loops within loops, with stores in the innermost bodies they name."""

    bounds: tuple[tuple[int, int, int], ...]  # from, to, step
    stores: tuple[Store, ...]
    shapes: dict[str, tuple[int, ...]]

    def run(self, arrays: dict[str, np.ndarray]) -> None:
        with np.errstate(over="ignore"):
            self._run(arrays, (), {})

    def _run(
        self, arrays: dict[str, np.ndarray], counters: tuple[int, ...], early: dict[tuple[int, int], np.int32]
    ) -> None:
        depth = len(counters)
        early = {**early, **{
            (number, place): arrays[array][tuple(_value(index, counters) for index in indices)]
            for number, place, (array, indices, _, _) in self._early(depth)
        }}  # fmt: skip
        for number, store in enumerate(self.stores):
            if store.depth == depth:
                self._store(number, arrays, counters, early)
        if depth < len(self.bounds) and any(store.depth > depth for store in self.stores):
            for counter in range(*self.bounds[depth]):
                self._run(arrays, (*counters, counter), early)

    def _early(self, depth: int) -> list[tuple[int, int, tuple[str, tuple[Index, ...], int, int]]]:
        """The loads that are done where the body at `depth` begins: for a store, and which of its loads."""
        return [
            (number, place, load) for number, store in enumerate(self.stores)
            for place, load in enumerate(store.loads) if load[3] == depth < store.depth
        ]

    def _store(
        self, number: int, arrays: dict[str, np.ndarray], counters: tuple[int, ...],
        early: dict[tuple[int, int], np.int32],
    ) -> None:
        store = self.stores[number]
        at = tuple(_value(index, counters) for index in store.indices)
        total = arrays[store.array][at] if store.accumulates else np.int32(0)
        for place, (array, indices, factor, _) in enumerate(store.loads):
            at_once = tuple(_value(index, counters) for index in indices)
            there = early[number, place] if (number, place) in early else arrays[array][at_once]
            total = total + there * np.int32(factor)
        arrays[store.array][at] = total

    def text(self) -> str:
        arguments = ", ".join(f"%{name}: {_type(shape)}" for name, shape in self.shapes.items())
        return f"func.func @main({arguments}) {{\n{self._body(0)}return\n}}\n"

    def _body(self, depth: int) -> str:
        lines = [
            f"%l{number}_{place} = affine.load {self._access(array, indices)}\n"
            for number, place, (array, indices, _, _) in self._early(depth)
        ]
        lines += [self._store_text(number, store) for number, store in enumerate(self.stores) if store.depth == depth]
        if depth < len(self.bounds) and any(store.depth > depth for store in self.stores):
            begin, end, step = self.bounds[depth]
            lines.append(f"affine.for %d{depth} = {begin} to {end} step {step} {{\n{self._body(depth + 1)}}}\n")
        return "".join(lines)

    def _store_text(self, number: int, store: Store) -> str:
        lines = [f"%zero{number} = arith.constant 0 : i32"]
        total = f"%zero{number}"
        if store.accumulates:
            total = f"%old{number}"
            lines.append(f"{total} = affine.load {self._access(store.array, store.indices)}")
        for place, (array, indices, factor, depth) in enumerate(store.loads):
            name = f"{number}_{place}"
            if depth >= store.depth:
                lines.append(f"%l{name} = affine.load {self._access(array, indices)}")
            lines += [
                f"%f{name} = arith.constant {factor} : i32",
                f"%m{name} = arith.muli %l{name}, %f{name} : i32",
                f"%s{name} = arith.addi {total}, %m{name} : i32",
            ]
            total = f"%s{name}"
        lines.append(f"affine.store {total}, {self._access(store.array, store.indices)}")
        return "\n".join(lines) + "\n"

    def _access(self, array: str, indices: tuple[Index, ...]) -> str:
        written = ", ".join(
            " + ".join([*(f"%d{dim} * {factor}" for dim, factor in terms.items()), str(constant)])
            for terms, constant in indices
        )
        return f"%{array}[{written}] : {_type(self.shapes[array])}"


def _value(index: Index, counters: tuple[int, ...]) -> int:
    return sum(counters[dim] * factor for dim, factor in index[0].items()) + index[1]


def _type(shape: tuple[int, ...]) -> str:
    return f"memref<{''.join(f'{extent}x' for extent in shape)}i32>"


@st.composite
def loop_nests(draw: st.DrawFn) -> Loops:
    """Nests of up to three loops and three stores into and from three arrays of rank 1 or 2, all within bounds."""
    count = draw(st.integers(1, 3))
    bounds = tuple(
        (begin := draw(st.integers(0, 2)), begin + draw(st.integers(1, 7)), draw(st.sampled_from([1, 1, 1, 2])))
        for _ in range(count)
    )
    ranks = {name: draw(st.integers(1, 2)) for name in "abc"}
    needed: dict[str, list[int]] = {name: [1] * rank for name, rank in ranks.items()}

    def index(depth: int, array: str, axis: int) -> Index:
        dims = draw(st.lists(st.integers(0, depth - 1), max_size=2, unique=True)) if depth else []
        terms = {dim: draw(st.sampled_from([1, 1, 1, 2, 3, -1])) for dim in dims}
        corners = itertools.product(*[list(range(*bounds[dim])) for dim in terms])
        values = [sum(f * v for f, v in zip(terms.values(), corner, strict=True)) for corner in corners]
        constant = max(0, -min(values)) + draw(st.integers(0, 2))
        needed[array][axis] = max(needed[array][axis], max(values) + constant + 1)
        return terms, constant

    def access(depth: int) -> tuple[str, tuple[Index, ...]]:
        array = draw(st.sampled_from("abc"))
        return array, tuple(index(depth, array, axis) for axis in range(ranks[array]))

    def store() -> Store:
        depth = draw(st.integers(0, count))
        array, indices = access(depth)
        depths = [draw(st.sampled_from([depth, depth, *range(depth)])) for _ in range(draw(st.integers(0, 2)))]
        loads = tuple((*access(own), draw(st.integers(-2, 3)), own) for own in depths)
        return Store(depth, array, indices, loads, draw(st.booleans()))

    stores = tuple(store() for _ in range(draw(st.integers(1, 3))))
    slack = {name: [draw(st.integers(0, 1)) for _ in range(rank)] for name, rank in ranks.items()}
    shapes = {name: tuple(n + s for n, s in zip(needed[name], slack[name], strict=True)) for name in "abc"}
    return Loops(bounds, stores, shapes)
