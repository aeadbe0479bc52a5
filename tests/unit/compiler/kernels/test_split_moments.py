"""Variances and sums of exponentials in pieces: as accurate as two passes, whatever the extents, and wherever the
differences are computed."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import build
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, stage, value

from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.split_moments import split_moments
from motet.compiler.kernels.split_reductions import split_reductions

DTYPES = {"f32": np.float32, "f64": np.float64}


def moments(rows: int, height: int, width: int, dtype: str, apart: bool = False) -> Kernel:
    """The mean of rows, and their mean square difference from it; `apart`, with differences in a stage of their own."""
    space, count = (rows, height, width), float(height * width)
    mean = stage((rows,), "p", [at(3, 1, 0)], [at(2, 1, 0)],
                 [op("constant", dtype=dtype, value=count), op("divf", 0, 2, dtype=dtype)])
    total = stage(space, "prr", [at(0, 3, 0, 1, 2)], [at(3, 3, 0)], [op("addf", 1, 0, dtype=dtype)], inits=[0.0])
    differences = stage(space, "ppp", [at(0, 3, 0, 1, 2), at(2, 3, 0)], [at(5, 3, 0, 1, 2)],
                        [op("subf", 0, 1, dtype=dtype)])
    if apart:
        squares = stage(space, "prr", [at(5, 3, 0, 1, 2)], [at(4, 3, 0)],
                        [op("mulf", 0, 0, dtype=dtype), op("addf", 2, 1, dtype=dtype)], inits=[0.0])
    else:
        squares = stage(space, "prr", [at(0, 3, 0, 1, 2), at(2, 3, 0)], [at(4, 3, 0)],
                        [op("subf", 0, 1, dtype=dtype), op("mulf", 3, 3, dtype=dtype), op("addf", 4, 2, dtype=dtype)],
                        inits=[0.0])
    variance = stage((rows,), "p", [at(4, 1, 0)], [at(1, 1, 0)],
                     [op("constant", dtype=dtype, value=count), op("divf", 0, 2, dtype=dtype)])
    roles = ("result", "result", "temporary", "temporary")
    values = [value(space, dtype), *(value((rows,), dtype, role) for role in roles), value(space, dtype, "temporary")]
    stages = [total, mean, *([differences] if apart else []), squares, variance]
    return kernel(values, *stages)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("height", "width"), [(1, 65_537), (257, 256), (7, 11_003), (331, 199), (1024, 64)])
def test_variances_in_pieces(height: int, width: int, apart: bool, dtype: str) -> None:
    whole = moments(3, height, width, dtype, apart)
    split = split_moments(whole, 8, 40)
    assert len(split.stages) > len(whole.stages)
    reading = [s for s in split.stages if any(access.value == 0 for access in s.inputs)]
    assert all(0 in [a.value for a in s.inputs] and len(s.sizes) >= 3 for s in reading)
    assert all(access.value != 5 for s in split.stages for access in s.inputs)  # the differences are not stored
    x = np.random.default_rng(height).standard_normal((3, height, width)).astype(DTYPES[dtype])
    x[1] += 1000
    variance, mean = build(loops.CLASS.generate, split)(x, split=3)
    wide = x.astype(np.longdouble)
    tolerance = 1e-5 if dtype == "f32" else 1e-12
    np.testing.assert_allclose(mean, wide.mean((1, 2)), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(variance, wide.var((1, 2)), rtol=10 * tolerance)


def test_numbers_that_are_none() -> None:
    x = np.random.default_rng(0).standard_normal((5, 64, 1031)).astype(np.float32)
    x[0, 3, 4], x[1, 63, 1030], x[2, 0, 0], x[3, 1, 1] = np.nan, np.inf, -np.inf, 3e38
    results = [build(loops.CLASS.generate, made)(x, split=3)
               for made in (moments(5, 64, 1031, "f32"), split_moments(moments(5, 64, 1031, "f32"), 8, 30))]
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(np.isfinite(one), np.isfinite(other))
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))


def exponentials(rows: int, length: int, dtype: str, form: str) -> Kernel:
    """The maximum of rows, and the sum of exponentials about it; with differences or terms in a stage of their own, or
    about 0 where the maximum is infinite."""
    space, finite = (rows, length), form == "finite"
    most = stage(space, "pr", [at(0, 2, 0, 1)], [at(2, 2, 0)], [op("maximumf", 0, 1, dtype=dtype)], inits=[-np.inf])
    middle = stage((rows,), "p", [at(2, 1, 0)], [at(4, 1, 0)],
                   [op("math.absf", 0, dtype=dtype), op("constant", dtype=dtype, value=np.inf),
                    op("cmpf", 2, 3, dtype="i1", predicate="oeq"), op("constant", dtype=dtype, value=0.0),
                    op("select", 4, 5, 0, dtype=dtype)])
    differences = [op("subf", 0, 1, dtype=dtype)]
    terms = [*differences, op("math.exp", 3, dtype=dtype)]
    about = [at(0, 2, 0, 1), at(4 if finite else 2, 2, 0)]
    own = {"differences": differences, "terms": terms}.get(form)
    if own is None:
        body, inputs = [*terms, op("addf", 4, 2, dtype=dtype)], about
    elif form == "terms":
        body, inputs = [op("addf", 0, 1, dtype=dtype)], [at(3, 2, 0, 1)]
    else:
        body, inputs = [op("math.exp", 0, dtype=dtype), op("addf", 2, 1, dtype=dtype)], [at(3, 2, 0, 1)]
    total = stage(space, "pr", inputs, [at(1, 2, 0)], body, inits=[0.0])
    apart = [] if own is None else [stage(space, "pp", about, [at(3, 2, 0, 1)], own)]
    values = [value(space, dtype), value((rows,), dtype, "result"), value((rows,), dtype, "result"),
              value(space, dtype, "temporary"), value((rows,), dtype, "temporary")]
    return kernel(values, most, *([middle] if finite else []), *apart, total)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("form", ["joined", "differences", "terms", "finite"])
@pytest.mark.parametrize("length", [65_537, 40_000, 100_003])
def test_exponentials_in_pieces(length: int, form: str, dtype: str) -> None:
    whole = exponentials(6, length, dtype, form)
    split = split_moments(whole, 8, 40)
    assert len(split.stages) > len(whole.stages)
    assert all(access.value != 3 for s in split.stages for access in s.inputs)
    x = 40 * np.random.default_rng(length).standard_normal((6, length)).astype(DTYPES[dtype])
    x[1, : length // 2] = x[2] = -np.inf
    x[3, 7], x[4, -1] = np.inf, np.nan
    x[5] -= 1000
    total, most = build(loops.CLASS.generate, split)(x, split=3)
    wide = x.astype(np.longdouble)
    top = wide.max(1)
    np.testing.assert_array_equal(most, top)
    about = np.where(np.isinf(top), 0, top) if form == "finite" else top
    with np.errstate(invalid="ignore", over="ignore"):
        exact = np.exp(wide - about[:, None]).sum(1)
    np.testing.assert_allclose(total, exact, rtol=1e-5 if dtype == "f32" else 1e-12)


@pytest.mark.parametrize("most", [2, 8])
def test_short_and_many_rows_stay(most: int) -> None:
    short = moments(3, 10, 10, "f32")
    assert split_moments(short, most, 40) is short
    many = moments(9, 1024, 64, "f32")
    assert split_moments(many, most, 40) is many


def test_squares_about_something_else_stay() -> None:
    """Without a sum of the same terms, nothing is read twice."""
    whole = moments(3, 1024, 64, "f32")
    given = [whole.values[0], value((3,)), value((3,), "f32", "result")]
    squares = stage((3, 1024, 64), "prr", [at(0, 3, 0, 1, 2), at(1, 3, 0)], [at(2, 3, 0)],
                    [op("subf", 0, 1), op("mulf", 3, 3), op("addf", 4, 2)], inits=[0.0])
    alone = kernel(given, squares)
    assert split_moments(alone, 8, 40) is alone
    assert len(split_reductions(alone, 8, 40).stages) > 1
