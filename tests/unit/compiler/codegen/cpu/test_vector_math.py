"""Elementary functions against the C library in a wider type, over dense, random and edge values."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from llvmlite import ir
from tests.unit.compiler.codegen.cpu.harness import compile_llvm, native_target

from motet.compiler.codegen.cpu.emit import vector_math
from motet.compiler.codegen.cpu.emit.builder import F32, F64, I64, PTR, Builder
from motet.compiler.codegen.cpu.emit.float_lanes import like

BINARY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def apply(
    function, x: np.ndarray, y: np.ndarray | None = None, lanes: int = 16, scales: bool = False
) -> np.ndarray:
    """`function(builder, x[, y])` over whole arrays, `lanes` at a time."""
    element = F32 if x.dtype == np.float32 else F64
    module = ir.Module()
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, PTR, I64]), "apply")
    b = Builder(f.append_basic_block())
    b.scales = scales

    def step(i, _):
        operands = f.args[: 1 if y is None else 2]
        values = [b.load_vector(b.at(operand, i, element), element, lanes) for operand in operands]
        b.store_vector(function(b, *values), b.at(f.args[2], i, element), element)

    b.loop(0, f.args[3], lanes, step)
    b.ret_void()
    engine = compile_llvm(str(module))
    padded = np.concatenate([x, np.ones(-len(x) % lanes, x.dtype)])
    second = padded if y is None else np.concatenate([y, np.ones(-len(y) % lanes, y.dtype)])
    out = np.empty_like(padded)
    BINARY(engine.get_function_address("apply"))(
        padded.ctypes.data, second.ctypes.data, out.ctypes.data, len(padded)
    )
    return out[: len(x)]


def ulps(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest error in units in the last place of `got`'s type; infinity where special values differ."""
    dtype = got.dtype.type
    with np.errstate(all="ignore"):
        rounded = expected.astype(dtype)
        special = ~np.isfinite(rounded)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        near = np.isinf(rounded) & (np.abs(got) == np.finfo(dtype).max) & (np.sign(got) == np.sign(rounded))
        if not np.all((same | near)[special]) or not np.all(np.isfinite(got[~special])):
            return math.inf
        unit = np.spacing(np.abs(rounded[~special]).clip(np.finfo(dtype).tiny)).astype(np.longdouble)
        return float(
            np.max(np.abs(got[~special].astype(np.longdouble) - expected[~special]) / unit, initial=0)
        )


def samples(dtype: type, low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(7)
    info = np.finfo(dtype)
    bits = np.uint32 if dtype == np.float32 else np.uint64
    anything = rng.integers(0, np.iinfo(bits).max, 100_000, dtype=bits).view(dtype)
    edges = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1.0,
        -1.0,
        info.tiny,
        -info.tiny,
        info.smallest_subnormal,
        -info.smallest_subnormal,
        info.max,
        info.min,
        info.eps,
        0.5,
        2.0,
        709.8,
        -745.2,
        88.73,
        -103.98,
        89.4,
    ]
    near = np.geomspace(float(info.tiny), 1.0, 20_000)
    with np.errstate(all="ignore"):
        return np.concatenate(
            [np.array(edges), rng.uniform(low, high, 200_000), near, -near, anything]
        ).astype(dtype)


REFERENCE = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "roundeven": np.rint,
    "absf": np.abs,
    "round": lambda x: np.copysign(np.trunc(np.abs(x) + 0.5 * (np.abs(x) != 0.5 - 2.0**-54)), x),
}
RANGE = {
    "exp": (-110, 95),
    "exp2": (-155, 135),
    "expm1": (-30, 95),
    "tanh": (-12, 12),
    "sinh": (-95, 95),
    "cosh": (-95, 95),
    "log": (0, 4),
    "log2": (0, 4),
    "log10": (0, 4),
    "log1p": (-1, 3),
}
LIMIT = {
    "exp": 2,
    "exp2": 2,
    "expm1": 2,
    "log": 3,
    "log2": 3,
    "log10": 3,
    "log1p": 3,
    "tanh": 5,
    "sinh": 4,
    "cosh": 4,
    "rsqrt": 2,
    "cbrt": 4,
    "sqrt": 0.5,
    "floor": 0,
    "ceil": 0,
    "trunc": 0,
    "roundeven": 0,
    "absf": 0,
    "round": 0,
}


@pytest.mark.parametrize("name", sorted(REFERENCE))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_function_is_within_its_documented_error(name, dtype):
    scale = 8 if dtype == np.float64 and name in ("exp", "expm1", "sinh", "cosh", "exp2") else 1
    low, high = RANGE.get(name, (-10, 10))
    x = samples(dtype, low * scale, high * scale)
    if name in ("sin", "cos", "tan"):
        x = x[~(np.abs(x) > 1e6)]
    wide = np.float64 if dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](x.astype(wide))
    got = apply(vector_math.UNARY[name], x)
    assert ulps(got, expected) <= LIMIT.get(name, 2)


@pytest.mark.skipif(not native_target().scales, reason="this processor has no such instruction")
@pytest.mark.parametrize("name", ["exp", "exp2"])
@pytest.mark.parametrize("dtype, lanes", [(np.float32, 16), (np.float64, 8)])
def test_scaling_by_one_instruction_is_as_exact(name, dtype, lanes):
    low, high = RANGE[name]
    scale = 8 if dtype == np.float64 else 1
    x = samples(dtype, low * scale, high * scale)
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](x.astype(np.float64 if dtype == np.float32 else np.longdouble))
    assert ulps(apply(vector_math.UNARY[name], x, lanes=lanes, scales=True), expected) <= LIMIT[name]


@pytest.mark.parametrize("name", ["expm1", "log1p", "tanh", "sinh", "erf", "sqrt", "floor", "round"])
def test_odd_function_keeps_the_sign_of_zero(name):
    got = apply(vector_math.UNARY[name], np.array([0.0, -0.0], np.float32))
    assert np.signbit(got).tolist() == [False, True] and np.all(got == 0)


def test_erf_is_accurate_where_gelu_needs_it():
    x = samples(np.float32, -5, 5)
    expected = np.array([math.erf(float(v)) for v in x])
    got = apply(vector_math.UNARY["erf"], x)
    finite = np.isfinite(expected)
    assert np.max(np.abs(got[finite] - expected[finite])) < 4e-7
    assert ulps(got, expected) <= 6
    assert np.all(got[np.abs(x) > 4] == np.sign(x[np.abs(x) > 4]))


def test_erf_of_f64_agrees_with_the_c_library():
    x = samples(np.float64, -7, 7)
    expected = np.array([math.erf(v) for v in x])
    assert ulps(apply(vector_math.UNARY["erf"], x, lanes=8), expected) <= 4  # the library's own error is below 1


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sines_near_multiples_of_quarter_turns(name, dtype):
    quarters = (np.arange(1, 20_000) * np.pi / 2).astype(dtype)
    x = np.concatenate([quarters, np.nextafter(quarters, dtype(1e9)), samples(dtype, -9e4, 9e4)])
    x = x[~(np.abs(x) > 1e9)]  # beyond the limit, the C library's
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](x.astype(np.float64 if dtype == np.float32 else np.longdouble))
    assert ulps(apply(vector_math.UNARY[name], x, lanes=8), expected) <= 2


@pytest.mark.parametrize("number", [3.0, 2**0.5, -7.1, 1e-20, 1e25, 0.1, 255.0, 4.0, 1e-40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_division_by_a_number_is_rounded_once(dtype, number):
    number = float(dtype(number))
    x = samples(dtype, -100, 100)
    with np.errstate(all="ignore"):
        expected = x / dtype(number)
    got = apply(lambda b, v: vector_math.divide_by_number(b, v, like(v.type, number), number), x)
    normal = ~(np.abs(x) < (1e-20 if dtype == np.float32 else 1e-250))  # else the remainder may be subnormal
    np.testing.assert_array_equal(got[normal], expected[normal])
    assert np.array_equal(np.signbit(got[x == 0]), np.signbit(expected[x == 0]))
    assert ulps(got, expected) <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pow_follows_c(dtype):
    rng = np.random.default_rng(3)
    special = np.array([0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e30, -1e30, 2.5])
    x, y = (part.reshape(-1) for part in np.meshgrid(special, special))
    x = np.concatenate([x, rng.uniform(-4, 4, 20_000), rng.uniform(0, 30, 50_000)]).astype(dtype)
    y = np.concatenate([y, rng.integers(-9, 9, 20_000), rng.uniform(-9, 9, 50_000)]).astype(dtype)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64))
    got = apply(vector_math.power, x, y)
    assert ulps(got, expected) <= 1
    assert np.array_equal(np.signbit(got[~np.isnan(expected)]), np.signbit(expected[~np.isnan(expected)]))


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0])
def test_pow_by_a_constant_needs_no_logarithm(exponent):
    x = samples(np.float32, -5, 5)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), np.full(x.shape, exponent))
    got = apply(lambda b, v: vector_math.power_constant(b, v, exponent), x)
    if exponent < -1:  # the square may overflow where its reciprocal is still subnormal
        keep = ~(np.abs(x) > 1e18) & ~(np.abs(x) < 1e-18)
        got, expected = got[keep], expected[keep]
    assert ulps(got, expected) <= 2


def test_scalars_are_computed_as_vectors_are():
    x = samples(np.float32, -5, 5)[:1024]
    for name in ("exp", "tanh", "log", "erf"):
        one, many = (apply(vector_math.UNARY[name], x, lanes=lanes) for lanes in (1, 16))
        assert np.array_equal(one, many, equal_nan=True)
