"""Every operation of stage bodies against numpy, as vectors with a ragged end and as single points."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import DTYPES, build, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, stage, value

from motet.compiler.codegen.cpu.rows import loops

RNG = np.random.default_rng(11)
INTEGERS = ["i8", "i16", "i32", "i64"]


def numbers(dtype: str, count: int = 77) -> np.ndarray:
    """Numbers of all kinds that `dtype` has, some of them special."""
    if dtype == "i1":
        return RNG.integers(0, 2, count).astype(bool)
    if dtype in ("f16", "bf16", "f32", "f64"):
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5]
        return RNG.permutation(np.concatenate([special, RNG.uniform(-9, 9, count - 8)])).astype(DTYPES[dtype])
    info = np.iinfo(DTYPES[dtype])
    special = np.array([0, 1, info.max, info.min, info.max - 1], DTYPES[dtype])
    rest = RNG.integers(info.min // 2, info.max // 2, count - 5).astype(DTYPES[dtype])
    return RNG.permutation(np.concatenate([special, rest]))


def apply(name: str, *arrays: np.ndarray, dtypes: list[str], result: str, predicate: str = "") -> np.ndarray:
    count, n = len(arrays), len(arrays[0])
    values = [value((n,), dtype) for dtype in dtypes]
    found = build(
        loops.CLASS.generate,
        kernel(
            [*values, value((n,), result, "result")],
            stage(
                (n,),
                "p",
                [at(i, 1, 0) for i in range(count)],
                [at(count, 1, 0)],
                [op(name, *range(count), dtype=result, predicate=predicate)],
            ),
        ),
    )
    return found(*arrays)[0]


def check(got: np.ndarray, expected: np.ndarray, tolerance: float = 0.0) -> None:
    wide = np.float64 if expected.dtype == ml_dtypes.bfloat16 else expected.dtype
    if tolerance == 0.0 or expected.dtype.kind in "biu":
        np.testing.assert_array_equal(got.astype(wide), expected.astype(wide))
    else:
        np.testing.assert_allclose(got.astype(wide), expected.astype(wide), rtol=tolerance)


FLOAT_BINARY = {
    "addf": np.add,
    "subf": np.subtract,
    "mulf": np.multiply,
    "divf": np.divide,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
    "remf": np.fmod,
}


@pytest.mark.parametrize("name", sorted(FLOAT_BINARY))
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_floating_operation_rounds_as_numpy(name, dtype):
    x, y = numbers(dtype), numbers(dtype)
    with np.errstate(all="ignore"):
        wide = x.dtype.type if dtype in ("f32", "f64") else np.float32
        expected = FLOAT_BINARY[name](x.astype(wide), y.astype(wide)).astype(DTYPES[dtype])
    check(apply(name, x, y, dtypes=[dtype] * 2, result=dtype), expected)


@pytest.mark.parametrize("name, winner", [("maximumf", False), ("minimumf", True)])
@pytest.mark.parametrize("constant", [0.0, -0.0, 1.5, float("nan"), None])
def test_maximum_orders_zeros_and_keeps_nan(name, winner, constant):
    x = np.array([0.0, -0.0, np.nan, 2.0, -2.0] * 7, np.float32)
    zeros = np.array([0.0, -0.0], np.float32)
    y = np.full_like(x, constant) if constant is not None else np.resize(zeros[::-1], x.shape)
    body = [op("constant", value=constant), op(name, 0, 2)]
    if constant is None:
        got = apply(name, x, y, dtypes=["f32"] * 2, result="f32")
    else:
        got = build(
            loops.CLASS.generate,
            kernel(
                [value((35,)), value((35,), role="result")],
                stage((35,), "p", [at(0, 1, 0)], [at(1, 1, 0)], body),
            ),
        )(x)[0]
    expected = (np.maximum if name == "maximumf" else np.minimum)(x, y)
    np.testing.assert_array_equal(got, expected)
    both = (x == 0) & (y == 0)
    signs = [np.signbit(x[both]), np.signbit(y[both])]
    assert np.array_equal(np.signbit(got[both]), (signs[0] | signs[1]) if winner else (signs[0] & signs[1]))


INTEGER_BINARY = {
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "maxsi": np.maximum,
    "minsi": np.minimum,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "floordivsi": np.floor_divide,
    "divsi": lambda x, y: np.trunc(x.astype(np.longdouble) / y.astype(np.longdouble)).astype(x.dtype),
    "remsi": np.fmod,
    "ceildivsi": lambda x, y: -np.floor_divide(-x, y),
}


@pytest.mark.parametrize("name", sorted(INTEGER_BINARY))
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_operation_wraps_and_rounds_as_numpy(name, dtype):
    x, y = numbers(dtype), numbers(dtype)
    if "div" in name or "rem" in name:
        y = np.where((y == 0) | (y == -1), 3, y).astype(x.dtype)
        x = np.where(x == np.iinfo(x.dtype).min, 5, x).astype(x.dtype)
    with np.errstate(all="ignore"):
        expected = INTEGER_BINARY[name](x, y)
    check(apply(name, x, y, dtypes=[dtype] * 2, result=dtype), expected)


@pytest.mark.parametrize(
    "name, function",
    [
        ("divui", np.floor_divide),
        ("remui", np.remainder),
        ("maxui", np.maximum),
        ("minui", np.minimum),
    ],
)
def test_unsigned_operation_reads_all_bits(name, function):
    x, y = numbers("i32"), numbers("i32")
    y = np.where(y == 0, 7, y).astype(np.int32)
    expected = function(x.view(np.uint32), y.view(np.uint32)).view(np.int32)
    check(apply(name, x, y, dtypes=["i32"] * 2, result="i32"), expected)


def test_division_by_zero_does_not_trap():
    x, y = numbers("i32"), np.zeros(77, np.int32)
    for name in ("divsi", "remsi", "divui", "remui", "floordivsi", "ceildivsi", "ceildivui"):
        assert apply(name, x, y, dtypes=["i32"] * 2, result="i32").shape == (77,)


@pytest.mark.parametrize(
    "name, function",
    [
        ("shli", np.left_shift),
        ("shrsi", np.right_shift),
        ("shrui", lambda x, y: (x.view(np.uint32) >> y.view(np.uint32)).view(np.int32)),
    ],
)
def test_shift(name, function):
    x, y = numbers("i32"), RNG.integers(0, 32, 77).astype(np.int32)
    check(apply(name, x, y, dtypes=["i32"] * 2, result="i32"), function(x, y))


COMPARISONS = {
    "oeq": lambda x, y, n: (x == y) & ~n,
    "ogt": lambda x, y, n: (x > y) & ~n,
    "oge": lambda x, y, n: (x >= y) & ~n,
    "olt": lambda x, y, n: (x < y) & ~n,
    "ole": lambda x, y, n: (x <= y) & ~n,
    "one": lambda x, y, n: (x != y) & ~n,
    "ord": lambda x, y, n: ~n,
    "ueq": lambda x, y, n: (x == y) | n,
    "ugt": lambda x, y, n: (x > y) | n,
    "uge": lambda x, y, n: (x >= y) | n,
    "ult": lambda x, y, n: (x < y) | n,
    "ule": lambda x, y, n: (x <= y) | n,
    "une": lambda x, y, n: (x != y) | n,
    "uno": lambda x, y, n: n,
    "true": lambda x, y, n: n | True,
    "false": lambda x, y, n: n & False,
}


@pytest.mark.parametrize("predicate", sorted(COMPARISONS))
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_floating_comparison(predicate, dtype):
    x, y = numbers(dtype), numbers(dtype)
    y[::3] = x[::3]
    a, b = x.astype(np.float32), y.astype(np.float32)
    expected = COMPARISONS[predicate](a, b, np.isnan(a) | np.isnan(b))
    check(apply("cmpf", x, y, dtypes=[dtype] * 2, result="i1", predicate=predicate), expected)


@pytest.mark.parametrize("predicate", ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"])
def test_integer_comparison(predicate):
    x, y = numbers("i16"), numbers("i16")
    y[::3] = x[::3]
    a, b = (x.view(np.uint16), y.view(np.uint16)) if predicate[0] == "u" else (x, y)
    name = {
        "eq": "equal",
        "ne": "not_equal",
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
    }[predicate if predicate in ("eq", "ne") else predicate[1:]]
    got = apply("cmpi", x, y, dtypes=["i16"] * 2, result="i1", predicate=predicate)
    check(got, getattr(np, name)(a, b))


@pytest.mark.parametrize(
    "name, source, target",
    [
        ("extf", "f16", "f32"),
        ("extf", "bf16", "f32"),
        ("extf", "f32", "f64"),
        ("extf", "f16", "f64"),
        ("truncf", "f32", "f16"),
        ("truncf", "f32", "bf16"),
        ("truncf", "f64", "f32"),
        ("sitofp", "i8", "f32"),
        ("sitofp", "i32", "f64"),
        ("sitofp", "i64", "f32"),
        ("sitofp", "i16", "bf16"),
        ("extsi", "i8", "i32"),
        ("trunci", "i64", "i16"),
        ("index_cast", "index", "i32"),
        ("uitofp", "i1", "f32"),
        ("extui", "i1", "i32"),
    ],
)
def test_conversion(name, source, target):
    x = numbers(source)
    with np.errstate(all="ignore"):
        expected = x.astype(DTYPES[target])
    check(apply(name, x, dtypes=[source], result=target), expected)


def test_conversion_to_integers_rounds_to_zero():
    x = RNG.uniform(-100, 100, 77).astype(np.float32)
    check(apply("fptosi", x, dtypes=["f32"], result="i32"), x.astype(np.int32))
    check(apply("fptoui", np.abs(x), dtypes=["f32"], result="i8"), np.abs(x).astype(np.int8))


@pytest.mark.parametrize(
    "source, target",
    [
        ("f32", "i32"),
        ("i32", "f32"),
        ("f16", "i16"),
        ("bf16", "i16"),
        ("i16", "bf16"),
        ("f64", "i64"),
        ("f16", "bf16"),
    ],
)
def test_bitcast_keeps_bits(source, target):
    x = RNG.uniform(-100, 100, 77).astype(DTYPES[source])
    got = apply("bitcast", x, dtypes=[source], result=target)
    assert got.tobytes() == x.tobytes()


def test_select_takes_lanes_by_a_condition():
    condition, x, y = numbers("i1"), numbers("f32"), numbers("f32")
    got = apply("select", condition, x, y, dtypes=["i1", "f32", "f32"], result="f32")
    np.testing.assert_array_equal(got, np.where(condition, x, y))


@pytest.mark.parametrize(
    "name, function",
    [
        ("absi", np.abs),
        ("ctpop", lambda x: np.bitwise_count(x.view(np.uint32)).astype(np.int32)),
        ("ctlz", lambda x: np.array([32 - int(v).bit_length() for v in x.view(np.uint32)], np.int32)),
        (
            "cttz",
            lambda x: np.array(
                [(int(v) & -int(v)).bit_length() - 1 if v else 32 for v in x.view(np.uint32)], np.int32
            ),
        ),
    ],
)
def test_integer_function(name, function):
    x = numbers("i32")
    check(apply(f"math.{name}", x, dtypes=["i32"], result="i32"), function(x))


def test_integer_powers():
    x, n = RNG.integers(-5, 6, 77).astype(np.int32), RNG.integers(0, 9, 77).astype(np.int32)
    check(apply("math.ipowi", x, n, dtypes=["i32"] * 2, result="i32"), x**n)
    y = RNG.uniform(0.5, 2, 77).astype(np.float32)
    n = RNG.integers(-9, 9, 77).astype(np.int32)
    got = apply("math.fpowi", y, n, dtypes=["f32", "i32"], result="f32")
    np.testing.assert_allclose(got, y.astype(np.float64) ** n, rtol=1e-6)


def power_of(x: np.ndarray, n: int, dtype: str) -> tuple[np.ndarray, str]:
    """`x ** n` for a constant `n`, and the code."""
    integer = dtype.startswith("i")
    made = kernel(
        [value((len(x),), dtype), value((len(x),), dtype, "result")],
        stage((len(x),), "p", [at(0, 1, 0)], [at(1, 1, 0)], [
            op("arith.constant", dtype="i64" if not integer else dtype, value=n),
            op("math.ipowi" if integer else "math.fpowi", 0, 2, dtype=dtype),
        ]),
    )  # fmt: skip
    found = build(loops.CLASS.generate, made)
    return found(x)[0], found.code.llvm


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "i32"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8, 13, -1, -2, -7])
def test_power_by_constant_integer(n, dtype):
    x = (RNG.integers(1, 3, 77) if dtype == "i32" else RNG.uniform(0.7, 1.4, 77)).astype(DTYPES[dtype])
    expected = x.astype(np.float64) ** n
    got, llvm = power_of(x, n, dtype)
    if dtype == "i32":
        np.testing.assert_array_equal(got, np.trunc(expected).astype(np.int32))
    else:
        tolerance = {"f16": 2e-3, "bf16": 1e-2, "f32": 2e-6, "f64": 1e-14}[dtype]
        np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance)
        assert "ctlz" not in llvm, "a power of a known exponent needs no loop over its bits"


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("n", [np.inf, -np.inf, np.nan, 0.0, 0.5, -0.5, 1.0, 3.0, -4.0, 5.0, 2.5, 1e300])
def test_power_by_constant_float(n, dtype):
    """As numpy calculates them."""
    if dtype == "f32" and n == 1e300:
        n = 1e30
    x = np.array([0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1.25, np.inf, -np.inf, np.nan], DTYPES[dtype])
    made = kernel(
        [value((len(x),), dtype), value((len(x),), dtype, "result")],
        stage((len(x),), "p", [at(0, 1, 0)], [at(1, 1, 0)], [
            op("arith.constant", dtype=dtype, value=n), op("math.powf", 0, 2, dtype=dtype),
        ]),
    )  # fmt: skip
    got = build(loops.CLASS.generate, made)(x)[0]
    with np.errstate(all="ignore"):
        expected = np.power(x, np.full_like(x, n))  # by C's pow; numpy takes a square root for a scalar 0.5
    np.testing.assert_allclose(got, expected, rtol=2e-6 if dtype == "f32" else 1e-13)


@pytest.mark.parametrize("dtype, tolerance", [("f16", 1e-3), ("bf16", 8e-3), ("f32", 1e-6), ("f64", 1e-14)])
@pytest.mark.parametrize(
    "name, function", [("exp", np.exp), ("tanh", np.tanh), ("log", np.log), ("sqrt", np.sqrt)]
)
def test_function_of_every_floating_type(name, function, dtype, tolerance):
    x = RNG.uniform(0.1, 5, 77).astype(DTYPES[dtype])
    expected = function(x.astype(np.float64)).astype(DTYPES[dtype])
    check(apply(f"math.{name}", x, dtypes=[dtype], result=dtype), expected, tolerance)


@pytest.mark.parametrize(
    "name, function", [("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite)]
)
def test_classification(name, function):
    x = numbers("f32")
    check(apply(f"math.{name}", x, dtypes=["f32"], result="i1"), function(x))


def test_an_unknown_operation_is_not_taken():
    unknown = kernel(
        [value((4,)), value((4,), role="result")],
        stage((4,), "p", [at(0, 1, 0)], [at(1, 1, 0)], [op("math.unheard_of", 0)]),
    )
    assert loops.CLASS.generate(unknown, native_target()) is None
