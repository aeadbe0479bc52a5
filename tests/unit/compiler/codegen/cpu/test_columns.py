"""Reductions of short rows, whose vectors run across neighbouring rows, against numpy in f64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import DTYPES, build, levels
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, stage, value

from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.codegen.cpu.rows.columns import ColumnWriter
from motet.compiler.kernels.kernel import Kernel, Size
from motet.compiler.targets.cpu import CpuTarget

TARGETS = list({target.vector_bits: target for target in levels()}.values())
LENGTHS = (7, 8, 17)


def reduction(rows: Size, length: int, name: str, dtype: str, start: float) -> Kernel:
    """y[i] = name over j of x[i, j]"""
    return kernel(
        [value((rows, length), dtype), value((rows,), dtype, "result")],
        stage((rows, length), "pr", [at(0, 2, 0, 1)], [at(1, 2, 0)], [op(name, 0, 1, dtype=dtype)], inits=[start]),
        symbols=[rows] if isinstance(rows, str) else [],
    )


def place_of_largest(shape: tuple[int, ...], dtype: str) -> Kernel:
    """The first place of the largest element of the last dimension; the first NaN, if there is one."""
    rank = len(shape)
    outer = tuple(range(rank - 1))
    compare = "cmpf" if dtype.startswith(("f", "b")) else "cmpi"
    body = [
        op("linalg.index", dtype="index", value=rank - 1), op("index_cast", 3, dtype="i64"),
        op("maximumf" if compare == "cmpf" else "maxsi", 0, 1, dtype=dtype),
        op(compare, 0, 1, dtype="i1", predicate="ugt" if compare == "cmpf" else "sgt"),
    ]
    if compare == "cmpf":
        body += [op("cmpf", 1, 1, dtype="i1", predicate="ord"), op("andi", 6, 7, dtype="i1")]
    flag = 2 + len(body)
    body += [op("select", flag, 4, 2, dtype="i64")]
    start: float = -np.inf if compare == "cmpf" else int(np.iinfo(DTYPES[dtype]).min)
    return kernel(
        [value(shape, dtype), value(shape[:-1], dtype, "temporary"), value(shape[:-1], "i64", "result")],
        stage(shape, "p" * (rank - 1) + "r", [at(0, rank, *range(rank))], [at(1, rank, *outer), at(2, rank, *outer)],
              body, yields=(5, flag + 1), inits=[start, 0]),
    )  # fmt: skip


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of rows that were read by columns."""
    found: list[int] = []
    made = ColumnWriter.__init__

    def init(self: ColumnWriter, *arguments: Any) -> None:
        made(self, *arguments)
        found.append(self.nest.sizes[self.reduced].factor)

    monkeypatch.setattr(ColumnWriter, "__init__", init)
    return found


def places_of(x: np.ndarray) -> np.ndarray:
    return np.argmax(np.asarray(x, np.float64 if x.dtype.kind not in "iu" else np.int64), -1)  # numpy: NaN is largest


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i8", "i32", "i64"])
def test_first_places_of_the_largest(dtype: str, target: CpuTarget, written: list[int]) -> None:
    for length, rows in zip((5, 8, 17, 31, 130), (130, 77, 33, 64, 19), strict=True):
        rng = np.random.default_rng(length)
        x = rng.integers(-6, 6, (rows, length)).astype(DTYPES[dtype])  # with many equal elements
        if dtype in ("f32", "f64", "bf16"):
            x[1], x[2, 1:], x[3, ::2], x[4] = -np.inf, np.inf, np.nan, -0.0
            x[4, length // 2] = 0.0
            x[5, -1] = x[6, 0] = np.nan
        (got,) = build(loops.CLASS.generate, place_of_largest(x.shape, dtype), target)(x, split=2)
        np.testing.assert_array_equal(got, places_of(x), err_msg=f"{rows}×{length}")
    assert len(written) >= 4


def test_rows_with_several_numbers(written: list[int]) -> None:
    x = np.random.default_rng(1).standard_normal((5, 9, 21)).astype(np.float32)
    (got,) = build(loops.CLASS.generate, place_of_largest(x.shape, "f32"))(x, split=3)
    np.testing.assert_array_equal(got, places_of(x))
    assert written == [21]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("name, dtype", [
    ("addf", "f32"), ("addf", "f64"), ("addf", "f16"), ("maximumf", "f32"), ("minimumf", "f64"), ("maximumf", "bf16"),
    ("addi", "i32"), ("maxsi", "i8"), ("mulf", "f32"), ("xori", "i64"),
])
def test_reductions(name: str, dtype: str, target: CpuTarget) -> None:
    functions = {"addf": np.add, "addi": np.add, "mulf": np.multiply, "maximumf": np.maximum, "minimumf": np.minimum,
                 "maxsi": np.maximum, "xori": np.bitwise_xor}
    starts: dict[str, Any] = {"maximumf": -np.inf, "minimumf": np.inf, "maxsi": -128, "mulf": 1.0}
    for length, rows in zip(LENGTHS, itertools.cycle((1, 8, 15, 33, 70, 131)), strict=False):
        rng = np.random.default_rng(length)
        x = (rng.standard_normal((rows, length)) * 3).astype(DTYPES[dtype])
        (got,) = build(loops.CLASS.generate, reduction(rows, length, name, dtype, starts.get(name, 0)), target)(x)
        exact = functions[name].reduce(x.astype(np.float64) if dtype[0] in "fb" else x, axis=1, dtype=None)
        tolerance = {"f16": 2e-3, "f32": 2e-6, "f64": 1e-14}.get(dtype, 0)
        np.testing.assert_allclose(got.astype(np.float64), exact.astype(np.float64), rtol=tolerance,
                                   atol=tolerance * 10, err_msg=f"{rows}×{length}")


@pytest.mark.parametrize("rows", [0, 1, 7, 16, 41])
def test_any_number_of_rows(rows: int, written: list[int]) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 11)).astype(np.float32)
    (got,) = build(loops.CLASS.generate, reduction("n", 11, "maximumf", "f32", -np.inf))(x, symbols={"n": rows})
    np.testing.assert_array_equal(got, x.max(1))
    assert written == [11]
