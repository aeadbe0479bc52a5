"""cuBLASLt for tests, over the driver for tests: matrices column by column, as its reference says, by numpy."""

from __future__ import annotations

import ctypes
import itertools
from collections import Counter
from typing import Any

import numpy as np
from tests.unit.runtime.drivers.cuda.fake import FakeApi, array

from motet.artifact.dtypes import DTYPES

_DTYPES = {0: "f32", 1: "f64", 2: "f16", 3: "i8", 10: "i32", 14: "bf16", 28: "f8E4M3FN"}
NOT_SUPPORTED = 15


class FakeCublas:
    """Version `number`. `refused` are the names of functions that fail, `algorithms` how many a search finds. An
    algorithm's first word is its number; number 3 works in memory of its own."""

    def __init__(self, api: FakeApi, number: int = 130100, algorithms: int = 4) -> None:
        self.api = api
        self.number = number
        self.algorithms = algorithms
        self.refused: dict[str, int] = {}
        self.calls: Counter[str] = Counter()
        self.used: list[int] = []  # the algorithms of products, in their order
        self.things: dict[int, dict[Any, Any]] = {}
        self._handles = itertools.count(1)

    def version(self) -> int:
        return self.number

    def call(self, name: str, *arguments: Any) -> int:
        self.calls[name] += 1
        if name in self.refused:
            return self.refused[name]
        return getattr(self, f"_{name}")(*arguments)

    def _make(self, place: Any, content: dict[Any, Any]) -> int:
        place._obj.value = number = next(self._handles)
        self.things[number] = content
        return 0

    def _destroy(self, thing: Any) -> int:
        del self.things[thing.value]
        return 0

    def _set(self, thing: Any, attribute: int, value: Any, size: Any) -> int:
        assert ctypes.sizeof(value._obj) == size.value
        self.things[thing.value][attribute] = value._obj.value
        return 0

    def _Create(self, place: Any) -> int:  # noqa: N802
        return self._make(place, {"handle": 1})

    def _MatmulDescCreate(self, place: Any, compute: int, scale: int) -> int:  # noqa: N802
        return self._make(place, {"compute": compute, "scale": scale})

    def _MatrixLayoutCreate(self, place: Any, kind: Any, rows: Any, columns: Any, step: Any) -> int:  # noqa: N802
        assert step.value >= rows.value
        return self._make(place, {"kind": kind.value, "shape": (rows.value, columns.value), "step": step.value})

    def _MatmulPreferenceCreate(self, place: Any) -> int:  # noqa: N802
        return self._make(place, {})

    _Destroy = _MatmulDescDestroy = _MatrixLayoutDestroy = _MatmulPreferenceDestroy = _destroy
    _MatmulDescSetAttribute = _MatrixLayoutSetAttribute = _MatmulPreferenceSetAttribute = _set

    def _MatmulAlgoGetHeuristic(self, handle: Any, operation: Any, *rest: Any) -> int:  # noqa: N802
        *_, preference, most, results, found = rest
        limit = self.things[preference.value][1]
        kept = [number for number in range(self.algorithms) if _workspace(number) <= limit][:most]
        for place, number in zip(results, kept, strict=False):
            place.algorithm[0], place.workspace, place.status = number, _workspace(number), 0
        found._obj.value = len(kept)
        return 0

    def _MatmulAlgoCheck(self, handle: Any, operation: Any, *rest: Any) -> int:  # noqa: N802
        *_, algorithm, result = rest
        if algorithm._obj[0] >= self.algorithms:
            return NOT_SUPPORTED
        result._obj.workspace = _workspace(algorithm._obj[0])
        return 0

    def _Matmul(  # noqa: N802
        self, handle: Any, operation: Any, alpha: Any, a: Any, of_a: Any, b: Any, of_b: Any, beta: Any, c: Any,
        of_c: Any, d: Any, of_d: Any, algorithm: Any, workspace: Any, size: Any, stream: Any,
    ) -> int:  # fmt: skip
        what = dict(self.things[operation.value])
        layouts = [dict(self.things[each.value]) for each in (of_a, of_b, of_c, of_d)]
        addresses = [each.value for each in (a, b, c, d)]
        factor, space, number = beta._obj.value, workspace.value, algorithm._obj[0]
        assert alpha._obj.value == 1 and size.value == _workspace(number)

        def work() -> None:
            self.used.append(number)
            if size.value:
                array(space, size.value, np.uint8)[:] = 0xEE
            _multiply(what, layouts, addresses, factor)

        self.api.streams[stream.value or 0].work.put(work)
        return 0


def _workspace(number: int) -> int:
    return 1000 if number == 3 else 0


def _multiply(what: dict[Any, Any], layouts: list[dict[Any, Any]], addresses: list[int], beta: float) -> None:
    for number in range(layouts[0].get(5, 1)):
        a, b, c, d = (_matrix(layout, address, number) for layout, address in zip(layouts, addresses, strict=True))
        exact = np.int64 if what["compute"] == 72 else np.float64
        product = (a.T if what[3] else a).astype(exact) @ (b.T if what[4] else b).astype(exact)
        if beta:
            product = product + c.astype(exact)
        if what[7] & 4:
            dtype = DTYPES[_DTYPES[layouts[3]["kind"]]]
            product = product + array(what[8], len(product), dtype).astype(exact)[:, None]
        if what[7] & 2:
            product = np.maximum(product, 0)
        if what[7] & 32:
            product = product * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (product + 0.044715 * product**3)))
        d[:] = product.astype(d.dtype)


def _matrix(layout: dict[Any, Any], address: int, number: int) -> np.ndarray:
    dtype, (rows, columns) = DTYPES[_DTYPES[layout["kind"]]], layout["shape"]
    start = address + number * layout.get(6, 0) * dtype.itemsize
    flat = array(start, (columns - 1) * layout["step"] + rows, dtype)
    strides = (dtype.itemsize, layout["step"] * dtype.itemsize)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), strides)
