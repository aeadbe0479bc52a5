"""Row kernels against numpy in double precision: lengths, dtypes, orders, special numbers, dynamic sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.compiler.codegen.cpu.harness import DTYPES, build, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, layer_norm, op, softmax, stage, value

from motet.compiler.codegen.cpu.rows import loops, rows
from motet.compiler.targets.cpu import X86_64_V3

RNG = np.random.default_rng(5)


def reference_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def row_reduction(shape, name: str, initial: float, dtype: str = "f32", order=()):
    return kernel(
        [value(shape, dtype, order=order), value(shape[:1], dtype, "result")],
        stage(shape, "pr", [at(0, 2, 0, 1)], [at(1, 2, 0)], [op(name, 0, 1, dtype=dtype)], inits=[initial]),
        symbols=[size for size in shape if isinstance(size, str)],
    )


@pytest.mark.parametrize("columns", [8, 15, 16, 17, 127, 1000])
@pytest.mark.parametrize("target", [native_target(), X86_64_V3], ids=lambda target: target.name)
def test_softmax(columns, target):
    x = (RNG.standard_normal((5, columns)) * 6).astype(np.float32)
    (got,) = build(loops.CLASS.generate, softmax(5, columns), target)(x)
    np.testing.assert_allclose(got, reference_softmax(x), rtol=2e-6, atol=1e-12)


@given(st.integers(1, 70), st.integers(1, 300), st.integers(1, 5))
@settings(max_examples=12)
def test_softmax_of_unknown_size_is_the_same_for_any_partition(count, columns, split):
    x = (np.random.default_rng(count).standard_normal((count, columns)) * 6).astype(np.float32)
    executable = build(rows.emit, softmax("n", "m"))
    symbols = {"n": count, "m": columns}
    (got,) = executable(x, symbols=symbols, split=split)
    np.testing.assert_allclose(got, reference_softmax(x), rtol=2e-6, atol=1e-12)
    np.testing.assert_array_equal(got, executable(x, symbols=symbols)[0])


@pytest.mark.parametrize("dtype, tolerance", [("f16", 4e-3), ("bf16", 4e-2), ("f64", 1e-13)])
def test_softmax_of_other_types(dtype, tolerance):
    x = (RNG.standard_normal((6, 77)) * 2).astype(DTYPES[dtype])
    (got,) = build(loops.CLASS.generate, softmax(6, 77, dtype))(x)
    np.testing.assert_allclose(got.astype(np.float64), reference_softmax(x), rtol=tolerance, atol=tolerance)


def test_softmax_of_masked_and_undefined_rows():
    x = RNG.standard_normal((4, 40)).astype(np.float32)
    x[0, 3:] = -np.inf
    x[1, 7] = np.nan
    x[2] = 1e30
    (got,) = build(loops.CLASS.generate, softmax(4, 40))(x)
    assert np.isnan(got[1]).all()
    np.testing.assert_allclose(got[[0, 2, 3]], reference_softmax(x)[[0, 2, 3]], rtol=2e-6)


@pytest.mark.parametrize("columns, scratch", [(2048, 8256), (32768, 0), ("m", 0)])
def test_softmax_keeps_short_rows_in_scratch_and_long_ones_where_the_result_will_be(columns, scratch):
    found = rows.group(softmax(64, columns), range(4), native_target())
    assert found is not None and found.scratch == scratch and len(found.passes) == 3


@pytest.mark.parametrize("count, columns", [(3, 32768), (1, 20011), (311, 1000), (1031, 257)])
def test_softmax_of_rows_that_are_asked_for_ahead(count, columns):
    x = (RNG.standard_normal((count, columns)) * 6).astype(np.float32)
    (got,) = build(rows.emit, softmax(count, columns))(x, split=3)
    np.testing.assert_allclose(got, reference_softmax(x), rtol=4e-6, atol=1e-12)


@pytest.mark.parametrize("target", [native_target(), X86_64_V3], ids=lambda target: target.name)
@pytest.mark.parametrize(
    "columns, symbols", [(4096, {}), (4099, {}), (4096, {"n": 2053}), (4099, {"n": 2053}), (4096, {"n": 3})]
)
def test_large_results_are_right_whether_they_go_past_the_caches_or_not(columns, symbols, target):
    """Results of 32 MiB, in rows of whole lines and others, at multiples of 64 bytes and elsewhere."""
    count = symbols.get("n", 2053)
    executable = build(rows.emit, softmax("n" if symbols else count, columns), target)
    assert "nontemporal" in executable.code.llvm
    x = RNG.standard_normal((count, columns)).astype(np.float32)
    expected = reference_softmax(x)
    for offset in (0, 4):
        invocation = executable.prepare([x], symbols)
        if offset:
            invocation.move_results(offset)
        invocation.run(3)
        np.testing.assert_allclose(invocation.results()[0], expected, rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("dtype, columns", [("f32", 1024), ("f32", 64), ("f32", 1000), ("f64", 512), ("f16", 1024)])
@pytest.mark.parametrize("offset", [4, 16, 60, 63])
def test_rows_may_begin_anywhere_in_a_line(dtype, columns, offset):
    """Large inputs are read from their first whole vector on, wherever numpy put them."""
    count = (2 << 20) // columns // np.dtype(DTYPES[dtype]).itemsize + 3
    x = (RNG.standard_normal((count, columns)) * 3).astype(DTYPES[dtype])
    invocation = build(loops.CLASS.generate, softmax(count, columns, dtype)).prepare([x])
    invocation.move_arguments(offset)
    invocation.run(2)
    tolerance = 2e-6 if dtype != "f16" else 4e-3
    got = invocation.results()[0].astype(np.float64)
    np.testing.assert_allclose(got, reference_softmax(x), rtol=tolerance, atol=tolerance)


def test_small_results_stay_in_the_caches():
    assert "nontemporal" not in build(rows.emit, softmax(128, 1024)).code.llvm


@pytest.mark.parametrize("target", [native_target(), X86_64_V3], ids=lambda target: target.name)
@pytest.mark.parametrize("name, better", [("maximumf", 0.0), ("minimumf", -0.0)])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("columns", [8, 61, 128])
def test_extremes_tell_zeros_apart(name, better, dtype, columns, target):
    """+0 is larger than -0; one of either sign anywhere in the row decides."""
    x = np.full((5, columns), -better, DTYPES[dtype])
    for row, place in enumerate((0, columns - 1, columns // 2)):
        x[row, place] = better
    x[3, 1] = 1.0 if name == "minimumf" else -1.0
    x[4] = better
    start = -np.inf if name == "maximumf" else np.inf
    (got,) = build(loops.CLASS.generate, row_reduction((5, columns), name, start, dtype), target)(x)
    assert (got == 0).all()
    expected = [better, better, better, -better, better]
    assert np.signbit(got.astype(np.float64)).tolist() == np.signbit(expected).tolist()


@given(st.data())
@settings(max_examples=25)
def test_extremes_of_strange_rows(data):
    name = data.draw(st.sampled_from(["maximumf", "minimumf"]))
    columns = data.draw(st.integers(8, 150))
    strange = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, -3.5, 2.25]
    entries = st.tuples(st.integers(0, columns - 1), st.sampled_from(strange))
    x = RNG.standard_normal((4, columns)).astype(np.float32)
    for row in range(4):
        for place, number in data.draw(st.lists(entries, max_size=6)):
            x[row, place] = number
    start, function = (-np.inf, np.max) if name == "maximumf" else (np.inf, np.min)
    (got,) = build(loops.CLASS.generate, row_reduction((4, columns), name, start))(x)
    np.testing.assert_array_equal(got, function(x, axis=1))


@pytest.mark.parametrize("columns", [9, 64, 1023])
def test_layer_norm(columns):
    x = (RNG.standard_normal((7, columns)) * 3 + 5).astype(np.float32)
    g, b = RNG.standard_normal((2, columns)).astype(np.float32)
    (got,) = build(loops.CLASS.generate, layer_norm(7, columns))(x, g, b, split=3)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * g + b
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name, initial, function",
    [
        ("addf", 0.0, np.sum),
        ("mulf", 1.0, np.prod),
        ("maximumf", -np.inf, np.max),
        ("minimumf", np.inf, np.min),
        ("maxnumf", -np.inf, np.nanmax),
        ("minnumf", np.inf, np.nanmin),
        ("addf", 2.5, lambda x, a: np.sum(x, a) + 2.5),
    ],
)
@pytest.mark.parametrize("columns", [1, 8, 33, 500])
def test_reduction(name, initial, function, columns):
    x = RNG.uniform(0.9, 1.1, (9, columns)).astype(np.float32)
    if "num" in name and columns > 1:
        x[:, ::3] = np.nan
        x[:, 1] = 1.0
    (got,) = build(loops.CLASS.generate, row_reduction((9, columns), name, initial))(x, split=2)
    np.testing.assert_allclose(got, function(x.astype(np.float64), 1), rtol=1e-5)


@pytest.mark.parametrize("name", ["maximumf", "minimumf"])
def test_maximum_of_a_row_with_nan_is_nan(name):
    x = RNG.standard_normal((3, 100)).astype(np.float32)
    x[1, 99] = np.nan
    (got,) = build(loops.CLASS.generate, row_reduction((3, 100), name, -np.inf if name == "maximumf" else np.inf))(x)
    assert np.isnan(got).tolist() == [False, True, False]


@pytest.mark.parametrize(
    "dtype, name, initial, function",
    [
        ("i32", "addi", 0, np.sum),
        ("i64", "muli", 1, np.prod),
        ("i8", "maxsi", -128, np.max),
        ("i16", "minsi", 32767, np.min),
        ("i1", "andi", 1, np.all),
        ("i1", "ori", 0, np.any),
        ("i32", "xori", 0, lambda x, a: np.bitwise_xor.reduce(x, a)),
    ],
)
def test_integer_reduction(dtype, name, initial, function):
    x = RNG.integers(0 if dtype == "i1" else -3, 2, (5, 131)).astype(DTYPES[dtype])
    (got,) = build(loops.CLASS.generate, row_reduction((5, 131), name, initial, dtype))(x)
    np.testing.assert_array_equal(got, function(x, 1).astype(DTYPES[dtype]))


def test_sums_of_narrow_numbers_are_kept_wide():
    x = np.ones((2, 5000), np.float16)
    (got,) = build(loops.CLASS.generate, row_reduction((2, 5000), "addf", 0.0, "f16"))(x)
    assert got.tolist() == [5000.0, 5000.0]


@pytest.mark.parametrize("shape", [(5, 9), (3, 100)])
def test_argmax_takes_the_first_of_equals(shape):
    found = kernel(
        [value(shape), value(shape[:1], "i64", "result"), value(shape[:1], role="result")],
        stage(
            shape,
            "pr",
            [at(0, 2, 0, 1)],
            [at(2, 2, 0), at(1, 2, 0)],
            [
                op("linalg.index", dtype="index", value=1),
                op("index_cast", 3, dtype="i64"),
                op("cmpf", 0, 1, dtype="i1", predicate="ogt"),
                op("select", 5, 0, 1),
                op("select", 5, 4, 2, dtype="i64"),
            ],
            yields=(6, 7),
            inits=[float("-inf"), 0],
        ),
    )
    x = RNG.integers(0, 5, shape).astype(np.float32)
    index, most = build(loops.CLASS.generate, found)(x)
    np.testing.assert_array_equal(index, x.argmax(1))
    np.testing.assert_array_equal(most, x.max(1))


def test_division_by_one_number_per_row_holds_at_the_ends_of_the_range():
    shape = (8, 64)
    found = kernel(
        [value(shape), value(shape, role="result"), value((8,), role="temporary")],
        stage(shape, "pr", [at(0, 2, 0, 1)], [at(2, 2, 0)], [op("maximumf", 0, 1)], inits=[float("-inf")]),
        stage(shape, "pp", [at(0, 2, 0, 1), at(2, 2, 0)], [at(1, 2, 0, 1)], [op("divf", 0, 1)]),
    )
    x = RNG.uniform(0.5, 1, shape).astype(np.float32)
    x *= np.array([1e-38, 1e-44, 3e38, 1e20, 1e-20, 1, 0, 1e30], np.float32)[:, None]
    (got,) = build(rows.emit, found)(x)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, x / x.max(1, keepdims=True), rtol=3e-7)


def test_mean_and_variance_over_two_dimensions_at_once():
    n, c, h, w = 2, 3, 5, 7
    found = kernel(
        [value((n, c, h, w)), value((n, c), role="result"), value((n, c), role="result")],
        stage(
            (n, c, h, w),
            "pprr",
            [at(0, 4, 0, 1, 2, 3)],
            [at(1, 4, 0, 1), at(2, 4, 0, 1)],
            [op("addf", 0, 1), op("mulf", 0, 0), op("addf", 4, 2)],
            yields=(3, 5),
            inits=[0.0, 0.0],
        ),
    )
    x = RNG.standard_normal((n, c, h, w)).astype(np.float32)
    executable = build(rows.emit, found)
    total, squares = executable(x, split=2)
    np.testing.assert_allclose(total, x.astype(np.float64).sum((2, 3)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(squares, (x.astype(np.float64) ** 2).sum((2, 3)), rtol=1e-5)


def test_temporaries_that_cannot_wait_in_the_result_wait_in_scratch():
    """The exponentials are needed after their sum, in another type than the result's."""
    shape = (6, 50)
    found = kernel(
        [
            value(shape),
            value(shape, "f16", "result"),
            value(shape, role="temporary"),
            value((6,), role="temporary"),
        ],
        stage(shape, "pp", [at(0, 2, 0, 1)], [at(2, 2, 0, 1)], [op("math.exp", 0)]),
        stage(shape, "pr", [at(2, 2, 0, 1)], [at(3, 2, 0)], [op("addf", 0, 1)], inits=[0.0]),
        stage(
            shape,
            "pp",
            [at(2, 2, 0, 1), at(3, 2, 0)],
            [at(1, 2, 0, 1)],
            [op("divf", 0, 1), op("truncf", 3, dtype="f16")],
        ),
    )
    x = RNG.standard_normal(shape).astype(np.float32)
    executable = build(rows.emit, found)
    assert executable.code.scratch >= 200 and executable.code.workspaces == ()
    np.testing.assert_allclose(executable(x)[0].astype(float), reference_softmax(x), rtol=2e-3)
