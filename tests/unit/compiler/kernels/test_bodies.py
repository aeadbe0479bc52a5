"""Bodies rewritten by identities, and stages whose results are overwritten."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import build
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, stage, value

from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.kernels import overwritten
from motet.compiler.kernels.identities import simplified
from motet.compiler.kernels.kernel import Kernel, Scalar
from motet.compiler.kernels.overwritten import Box, without_overwritten

NUMBERS = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 88.9, -88.9, -104.0, 1e30, 0.5, -0.5, 19.9, 20.1, 3.0])


def softplus(form: str, dtype: str) -> list[Scalar]:
    """log(1 + exp(x)) of value 0, the last operation, as exporters write it; value 1 is the result."""
    if form == "log1p":
        return [op("math.exp", 0, dtype=dtype), op("math.log1p", 2, dtype=dtype)]
    one = op("constant", dtype=dtype, value=1.0)
    if form == "log":
        return [op("math.exp", 0, dtype=dtype), one, op("addf", 3, 2, dtype=dtype), op("math.log", 4, dtype=dtype)]
    parts = [
        op("math.absf", 0, dtype=dtype), op("negf", 2, dtype=dtype), op("math.exp", 3, dtype=dtype),
        op("math.log1p", 4, dtype=dtype), op("constant", dtype=dtype, value=0.0), op("maximumf", 0, 6, dtype=dtype),
        op("addf", 7, 5, dtype=dtype),
    ]
    if form == "stable":
        return parts
    limit = op("constant", dtype="f64", value=20.0)
    if dtype == "f32":
        test = [op("extf", 0, dtype="f64"), limit, op("cmpf", 9, 10, dtype="i1", predicate="ogt")]
    else:
        test = [limit, op("cmpf", 0, 9, dtype="i1", predicate="ogt")]
    return [*parts, *test, op("select", 8 + len(test), 0, 8, dtype=dtype)]


def mish(form: str, dtype: str) -> Kernel:
    body = softplus(form, dtype)
    body.append(op("math.tanh", 1 + len(body), dtype=dtype))
    body.append(op("mulf", 0, 1 + len(body), dtype=dtype))
    values = [value((777,), dtype), value((777,), dtype, "result")]
    return kernel(values, stage((777,), "p", [at(0, 1, 0)], [at(1, 1, 0)], body))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("form", ["log1p", "log", "stable", "above a threshold"])
def test_mish_is_one_exponential_and_one_division(form: str, dtype: str) -> None:
    found = simplified(mish(form, dtype))
    names = [scalar.op for scalar in found.stages[0].body]
    assert names.count("math.exp") == 1 and names.count("arith.divf") == 1
    assert not {"math.tanh", "math.log1p", "math.log", "arith.extf"} & set(names)
    kind = np.float32 if dtype == "f32" else np.float64
    x = np.concatenate([NUMBERS, np.random.default_rng(3).normal(0, 9, 777 - len(NUMBERS))]).astype(kind)
    (got,) = build(loops.CLASS.generate, found)(x)
    wide = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        expected = wide * np.tanh(np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide))))
    np.testing.assert_allclose(got, expected.astype(kind), rtol=1e-6 if dtype == "f32" else 2e-15, atol=1e-38)


def test_thresholds_at_which_tanh_is_not_1_are_kept() -> None:
    body = [*softplus("stable", "f32"), op("constant", value=2.0), op("cmpf", 0, 9, dtype="i1", predicate="ogt"),
            op("select", 10, 0, 8), op("math.tanh", 11)]
    given = kernel([value((5,)), value((5,), role="result")], stage((5,), "p", [at(0, 1, 0)], [at(1, 1, 0)], body))
    assert simplified(given) == given


@pytest.mark.parametrize("limit, narrow", [(20.0, True), (0.1, False), (1e300, False)])
def test_widened_numbers_are_compared_without_widening_if_the_constant_is_exact(limit: float, narrow: bool) -> None:
    body = [op("extf", 0, dtype="f64"), op("constant", dtype="f64", value=limit),
            op("cmpf", 2, 3, dtype="i1", predicate="ogt")]
    given = kernel([value((5,)), value((5,), "i1", "result")], stage((5,), "p", [at(0, 1, 0)], [at(1, 1, 0)], body))
    dtypes = {scalar.dtype for scalar in simplified(given).stages[0].body}
    assert ("f64" not in dtypes) is narrow


def filled(*parts: tuple[int, int]) -> Kernel:
    """A fill of 10 numbers, and copies of `count` numbers to `first` for each of `parts`."""
    stages = [stage((10,), "p", [], [at(1, 1, 0)], [op("constant", value=7.0)])]
    stages += [
        stage((count,), "p", [at(0, 1, 0)], [at(1, 1, (first, {0: 1}))], [], yields=(0,)) for first, count in parts
    ]
    return kernel([value((10,)), value((10,), role="result")], *stages)


@pytest.mark.parametrize("parts, removed", [
    ([(0, 10)], True), ([(0, 4), (4, 6)], True), ([(5, 5), (0, 5)], True), ([(0, 4), (5, 5)], False),
    ([(0, 6), (4, 6)], False), ([(0, 5), (0, 5)], False),
])  # fmt: skip
def test_a_fill_that_copies_overwrite_is_removed(parts: list[tuple[int, int]], removed: bool) -> None:
    given = filled(*parts)
    found = without_overwritten(given)
    assert len(found.stages) == len(given.stages) - removed
    x = np.arange(10, dtype=np.float32)
    (got,), (expected,) = (build(loops.CLASS.generate, each)(x) for each in (found, given))
    np.testing.assert_array_equal(got, expected)


def test_work_on_overwritten_stages_grows_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def counted(one: Box, other: Box) -> bool:
        nonlocal compared
        compared += 1
        return meet(one, other)

    meet = overwritten._meet
    monkeypatch.setattr(overwritten, "_meet", counted)
    copies = [stage((2,), "p", [at(0, 1, 0)], [at(1, 1, (2 * n, {0: 1}))], [], yields=(0,)) for n in range(1000)]
    fill = stage((2000,), "p", [], [at(1, 1, 0)], [op("constant", value=7.0)])
    given = kernel([value((2,)), value((2000,), role="result")], fill, *copies)
    assert without_overwritten(given).stages == given.stages[1:]
    assert compared <= 2000


@pytest.mark.parametrize("boxes, disjoint", [
    ([], True), ([()], True), ([(), ()], False), ([((0, 3),), ((4, 5),), ((-2, -1),)], True),
    ([((0, 9), (0, 1)), ((0, 9), (2, 3))], True), ([((0, 9), (0, 1)), ((3, 4), (5, 6)), ((8, 9), (1, 1))], False),
])  # fmt: skip
def test_boxes_without_a_common_element_are_disjoint(boxes: list[Box], disjoint: bool) -> None:
    assert overwritten.are_disjoint(boxes) is disjoint
