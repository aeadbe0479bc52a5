"""Element-wise StableHLO on edge values: i1, integers of every width, complex numbers, reduced precision.

What is expected comes from numpy in double precision, Python's integers, or arithmetic on bits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

import motet

BF16 = np.dtype(ml_dtypes.bfloat16)
SIGNED = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
UNSIGNED = {"ui8": np.uint8, "ui16": np.uint16, "ui32": np.uint32, "ui64": np.uint64}


@dataclass(frozen=True)
class Case:
    name: str
    inputs: list[tuple[np.ndarray, str]]
    body: Callable[[int, list[str]], str]  # lines that define %r and the number
    result: str
    expected: np.ndarray


def tensor(array: np.ndarray, element: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in array.shape)}{element}>"


def results(cases: list[Case]) -> list[np.ndarray]:
    """All cases in one program."""
    arguments: list[str] = []
    lines: list[str] = []
    given: list[np.ndarray] = []
    for number, case in enumerate(cases):
        names = [f"%a{len(arguments) + i}" for i in range(len(case.inputs))]
        arguments += [f"{n}: {tensor(a, e)}" for n, (a, e) in zip(names, case.inputs, strict=True)]
        given += [array for array, _ in case.inputs]
        lines.append(case.body(number, names))
    kinds = ", ".join(case.result for case in cases)
    values = ", ".join(f"%r{number}" for number in range(len(cases)))
    body = "\n".join(lines)
    text = f"func.func @main({', '.join(arguments)}) -> ({kinds}) {{\n{body}\nreturn {values} : {kinds}\n}}\n"
    found = motet.load(motet.compile(text, format="stablehlo", devices="host{cpu=native}", cache=False))(*given)
    return [found] if len(cases) == 1 else list(found)


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left, right = np.meshgrid(values, values, indexing="ij")
    return left.ravel().copy(), right.ravel().copy()


def binary(name: str, element: str, left: np.ndarray, right: np.ndarray, expected: np.ndarray) -> Case:
    kind = tensor(left, element)
    return Case(
        f"{name} {element}", [(left, element), (right, element)],
        lambda n, a: f"%r{n} = stablehlo.{name} {a[0]}, {a[1]} : {kind}", kind, expected,
    )  # fmt: skip


# -- i1 --------------------------------------------------------------------------------------------


def reduction(name: str, bits: list[int], start: str, expected: bool) -> Case:
    array = np.array(bits, bool)
    return Case(
        f"reduce {name} {bits}", [(array, "i1")],
        lambda n, a: f"%c{n} = stablehlo.constant dense<{start}> : tensor<i1>\n"
        f"%r{n} = stablehlo.reduce({a[0]} init: %c{n}) applies stablehlo.{name} across dimensions = [0] "
        f": ({tensor(array, 'i1')}, tensor<i1>) -> tensor<i1>", "tensor<i1>", np.array(expected),
    )  # fmt: skip


def test_arithmetic_of_i1_is_logic():
    a, b = pairs(np.array([False, True]))
    both = {"add": a | b, "multiply": a & b, "maximum": a | b, "minimum": a & b, "or": a | b, "xor": a ^ b}
    cases = [binary(name, "i1", a, b, expected) for name, expected in both.items()]
    for bits in ([0, 0, 0], [1, 1, 0], [1, 1, 1]):
        cases += [
            reduction("add", bits, "false", any(bits)), reduction("multiply", bits, "true", all(bits)),
            reduction("maximum", bits, "false", any(bits)), reduction("minimum", bits, "true", all(bits)),
        ]  # fmt: skip
    left, right = np.array([[1, 1, 0], [0, 0, 1]], bool), np.array([[1, 0], [1, 0], [0, 0]], bool)
    cases.append(Case(
        "dot", [(left, "i1"), (right, "i1")],
        lambda n, a: f"%r{n} = stablehlo.dot_general {a[0]}, {a[1]}, contracting_dims = [1] x [0] "
        ": (tensor<2x3xi1>, tensor<3x2xi1>) -> tensor<2x2xi1>", "tensor<2x2xi1>",
        (left.astype(int) @ right.astype(int)) > 0,
    ))  # fmt: skip
    for case, found in zip(cases, results(cases), strict=True):
        np.testing.assert_array_equal(found, case.expected, err_msg=case.name)


# -- integers --------------------------------------------------------------------------------------


def power(base: int, exponent: int, modulus: int) -> int:
    if exponent >= 0:
        return pow(base, exponent, modulus)
    return (1 if exponent % 2 == 0 else base) % modulus if base in (1, -1) else 0


def test_powers_of_integers_take_the_whole_exponent():
    cases: list[Case] = []
    for element, dtype in (SIGNED | UNSIGNED).items():
        limits = np.iinfo(dtype)
        bases = [n for n in (0, 1, 2, 3, -1, -2, limits.min, limits.max) if limits.min <= n]
        exponents = [n for n in (0, 1, 2, 7, 63, 64, 65, 127, limits.max, -1, -2, limits.min) if limits.min <= n]
        left, right = (grid.ravel().copy() for grid in np.meshgrid(
            np.array(bases, dtype), np.array(exponents, dtype), indexing="ij"
        ))  # fmt: skip
        modulus = 1 << limits.bits
        unsigned = [power(int(x), int(n), modulus) for x, n in zip(left, right, strict=True)]
        expected = np.array(unsigned, np.uint64).astype(dtype)
        cases.append(binary("power", element, left, right, expected))
    for case, found in zip(cases, results(cases), strict=True):
        np.testing.assert_array_equal(found, case.expected, err_msg=case.name)


# -- floats ----------------------------------------------------------------------------------------


def rounded_bits(values: np.ndarray, exponent: int, mantissa: int) -> np.ndarray:
    """XLA's definition, on the bits: round to nearest, ties to even, then 0 and infinity for what is out of range."""
    info = ml_dtypes.finfo(values.dtype)
    word = np.dtype(f"u{values.dtype.itemsize}")
    results: list[int] = []
    for bits in values.view(word).tolist():
        sign, rest = bits & (1 << (info.bits - 1)), bits & ((1 << (info.bits - 1)) - 1)
        infinity = ((1 << info.nexp) - 1) << info.nmant
        if rest >= infinity:
            results.append(bits)
            continue
        if (dropped := info.nmant - mantissa) > 0:
            rest += ((rest >> dropped) & 1) + (1 << (dropped - 1)) - 1
            rest = rest >> dropped << dropped
        if exponent < info.nexp:
            half = (1 << (info.nexp - 1)) - 1
            narrow = (1 << (exponent - 1)) - 1
            if rest >> info.nmant > half + narrow:
                rest = infinity
            elif rest >> info.nmant <= half - narrow:
                rest = 0
        results.append(sign | min(rest, infinity))
    return np.array(results, word).view(values.dtype)


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_reduced_precision_of_any_bits(element: str):
    dtype = np.dtype({"f16": np.float16, "bf16": BF16, "f32": np.float32, "f64": np.float64}[element])
    info = ml_dtypes.finfo(dtype)
    random = np.random.default_rng(3)
    word = np.dtype(f"u{dtype.itemsize}")
    values = np.concatenate([
        np.array([0.0, -0.0, 1.5, 3.0, -0.75, 6.0, 12.0, 1.25, 65504.0, np.inf, -np.inf, np.nan]).astype(dtype),
        (random.standard_normal(48) * 50).astype(dtype),
        random.integers(0, 1 << info.bits, 64, dtype=np.uint64).astype(word).view(dtype),
    ])  # fmt: skip
    kind = tensor(values, element)
    cases = [
        Case(f"e{e}m{m}", [(values, element)],
             lambda n, a, e=e, m=m: f"%r{n} = stablehlo.reduce_precision {a[0]}, format = e{e}m{m} : {kind}",
             kind, rounded_bits(values, e, m))
        for e in sorted({1, 2, 4, 5, 8, info.nexp}) for m in sorted({0, 1, 2, 7, info.nmant - 1, info.nmant})
        if e <= info.nexp and m <= info.nmant
    ]  # fmt: skip
    for case, found in zip(cases, results(cases), strict=True):
        number = ~np.isnan(values)
        np.testing.assert_array_equal(
            found.view(word)[number], case.expected.view(word)[number], err_msg=f"{case.name} {element}"
        )
        odd = np.isinf if case.name.endswith("m0") else np.isnan  # without a mantissa there is no NaN
        assert odd(found[~number]).all()


def test_numbers_that_an_integer_type_lacks_become_the_nearest_one():
    cases: list[Case] = []
    for element, dtype in (("f16", np.float16), ("f32", np.float32), ("f64", np.float64)):
        numbers = [0.0, -0.5, 1.9, -1.9, 126.5, 128.0, -128.5, 255.9, 256.0, 3e4, -4e4, np.inf, -np.inf, np.nan]
        numbers += [2.0**31, -(2.0**31), 2.0**63, 2.0**64, -(2.0**63), 1e30] if element != "f16" else []
        values = np.array(numbers, dtype)
        for target, integer in (SIGNED | UNSIGNED).items():
            limits = np.iinfo(integer)
            whole = [0 if np.isnan(n) else n if np.isinf(n) else int(n) for n in values.astype(np.float64)]
            expected = np.array([int(min(max(n, limits.min), limits.max)) for n in whole], integer)
            kinds = tensor(values, element), tensor(values, target)
            cases.append(Case(
                f"{element} to {target}", [(values, element)],
                lambda n, a, kinds=kinds: f"%r{n} = stablehlo.convert {a[0]} : ({kinds[0]}) -> {kinds[1]}",
                kinds[1], expected,
            ))  # fmt: skip
    for case, found in zip(cases, results(cases), strict=True):
        np.testing.assert_array_equal(found, case.expected, err_msg=case.name)


def test_logistic_of_short_floats():
    cases: list[Case] = []
    for element, dtype in (("f16", np.dtype(np.float16)), ("bf16", BF16)):
        values = np.array([-20.0, -11.5, -3.0, -0.1, 0.0, 0.1, 3.0, 20.0, -np.inf, np.inf]).astype(dtype)
        kind = tensor(values, element)
        expected = (1 / (1 + np.exp(-values.astype(np.float64)))).astype(dtype)
        cases.append(Case(
            element, [(values, element)],
            lambda n, a, kind=kind: f"%r{n} = stablehlo.logistic {a[0]} : {kind}", kind, expected,
        ))  # fmt: skip
    for case, found in zip(cases, results(cases), strict=True):
        relative = {"bf16": 2.0**-8, "f16": 2.0**-10}[case.name]
        got, expected = (array.astype(np.float64) for array in (found, case.expected))
        np.testing.assert_allclose(got, expected, rtol=relative, atol=6e-8, err_msg=case.name)


# -- complex numbers -------------------------------------------------------------------------------



def log1p(z: np.ndarray) -> np.ndarray:
    return np.where(np.abs(z) < 1e-7, z - z * z / 2, np.log(1 + z))


def expm1(z: np.ndarray) -> np.ndarray:
    return np.where(np.abs(z) < 1e-7, z + z * z / 2, np.exp(z) - 1)


UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "stablehlo.cosine": np.cos, "stablehlo.exponential": np.exp, "stablehlo.exponential_minus_one": expm1,
    "stablehlo.log": np.log, "stablehlo.log_plus_one": log1p, "stablehlo.sine": np.sin, "stablehlo.sqrt": np.sqrt,
    "stablehlo.tan": np.tan, "stablehlo.tanh": np.tanh, "stablehlo.rsqrt": lambda z: 1 / np.sqrt(z),
    "stablehlo.logistic": lambda z: 1 / (1 + np.exp(-z)), "stablehlo.sign": lambda z: z / np.abs(z),
    "stablehlo.cbrt": lambda z: np.exp(np.log(z) / 3), "stablehlo.negate": np.negative,
    "chlo.sinh": np.sinh, "chlo.cosh": np.cosh, "chlo.asin": np.arcsin, "chlo.acos": np.arccos, "chlo.atan": np.arctan,
    "chlo.asinh": np.arcsinh, "chlo.acosh": np.arccosh, "chlo.atanh": np.arctanh,
}  # fmt: skip
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "power": np.power,
    "atan2": lambda y, x: -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y)),
}  # fmt: skip
BRANCHES = ("acos", "asin", "acosh", "asinh", "atan", "atanh")  # where zeros without a sign decide


def complex_case(name: str, element: str, parts: list[np.ndarray], expected: np.ndarray) -> Case:
    """The result's real parts, then its imaginary ones."""
    real = tensor(parts[0], element)
    number = real.replace(element, f"complex<{element}>")
    double = tensor(np.concatenate([parts[0], parts[0]]), element)
    signature = f"{number} -> {number}" if name.startswith("chlo.") else number

    def body(n: int, a: list[str]) -> str:
        lines = [f"%z{n}_{i // 2} = stablehlo.complex {a[i]}, {a[i + 1]} : {number}" for i in range(0, len(a), 2)]
        operands = ", ".join(f"%z{n}_{i}" for i in range(len(a) // 2))
        return "\n".join([
            *lines, f"%w{n} = {name} {operands} : {signature}",
            f"%x{n} = stablehlo.real %w{n} : ({number}) -> {real}",
            f"%y{n} = stablehlo.imag %w{n} : ({number}) -> {real}",
            f"%r{n} = stablehlo.concatenate %x{n}, %y{n}, dim = 0 : ({real}, {real}) -> {double}",
        ])  # fmt: skip

    return Case(f"{name} {element}", [(part, element) for part in parts], body, double, expected)


def magnitude_case(element: str, real: np.ndarray, imaginary: np.ndarray) -> Case:
    kind = tensor(real, element)
    number = kind.replace(element, f"complex<{element}>")
    with np.errstate(over="ignore"):
        expected = np.hypot(real, imaginary)
    return Case(
        f"abs {element}", [(real, element), (imaginary, element)],
        lambda n, a: f"%z{n} = stablehlo.complex {a[0]}, {a[1]} : {number}\n"
        f"%r{n} = stablehlo.abs %z{n} : ({number}) -> {kind}", kind, expected,
    )  # fmt: skip


def together(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    """Complex numbers of more digits than any that are compared with them."""
    number = np.empty(real.shape, np.clongdouble)
    number.real, number.imag = real, imaginary
    return number


@pytest.mark.slow
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_complex_functions(element: str):
    """On the axes, near 0 and 1, far out: as numpy's in extended precision, relative to the magnitude."""
    dtype = {"f32": np.float32, "f64": np.float64}[element]
    huge = {"f32": 1e30, "f64": 1e200}[element]
    real, imaginary = pairs(np.array([0.0, 1.0, -1.0, 0.5, -2.5, 1e-4, -1e-9, 9.0, -30.0, huge, 1 / huge], dtype))
    z = together(real, imaginary)
    other = np.array([0.7 - 0.2j, -1.5 + 2j, 3 + 0j, 0.5j])[np.arange(len(z)) % 4]
    parts = [other.real.astype(dtype), other.imag.astype(dtype)]
    w = together(*parts)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        cases = [complex_case(name, element, [real, imaginary], f(z)) for name, f in UNARY.items()]
        cases += [
            complex_case(f"stablehlo.{name}", element, [real, imaginary, *parts], f(z, w)) for name, f in BINARY.items()
        ]
    magnitude = magnitude_case(element, *pairs(np.array([0, 1, -3, np.inf, np.nan, huge, 1 / huge], dtype)))
    *found, length = results([*cases, magnitude])
    epsilon = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(length, magnitude.expected, rtol=4 * epsilon)
    for case, both in zip(cases, found, strict=True):
        got, expected = together(*both.reshape(2, -1)), case.expected
        check = np.isfinite(expected) & (np.abs(expected) < np.finfo(dtype).max / 4)
        check &= np.abs(expected) > np.finfo(dtype).tiny * 4
        if any(name in case.name for name in (*BRANCHES, "rsqrt", "atan2")):
            check &= (real != 0) & (imaginary != 0)
        # What numpy itself computes by a logarithm and an exponential is as exact as their argument is small.
        allowed = {"power": 3e3, "cbrt": 3e3, "atan2": 64}.get(case.name.split()[0].removeprefix("stablehlo."), 16)
        if case.name.startswith("chlo.atan"):  # upstream's form squares the distance from the pole
            check &= np.abs(expected) < 20
        if "atan2" in case.name:  # its definition squares, and cancels where the quotient is small
            squares = z * z + w * w
            check &= (np.abs(z) < 1e10) & (np.abs(z) > 0.1) & (np.abs(squares) > 0.1) & (np.abs(squares.imag) > 0.1)
        error = np.abs(got - expected)[check] / np.abs(expected)[check] / epsilon
        worst = np.argmax(error)
        of = f"{case.name} of {z[check][worst]}"
        assert error[worst] <= allowed, f"{of}: {got[check][worst]}, not {expected[check][worst]}"


def test_complex_functions_of_infinities():
    infinity, nan = np.inf, np.nan
    inputs = [complex(infinity, 2), complex(-infinity, 2), complex(3, infinity), complex(1, nan)]
    real, imaginary = (np.array([getattr(z, part) for z in inputs]) for part in ("real", "imag"))
    z = together(real, imaginary)
    names = ("exponential", "log", "sqrt", "sine", "cosine", "tanh", "exponential_minus_one", "log_plus_one")
    with np.errstate(all="ignore"):
        known = {f"stablehlo.{name}": UNARY[f"stablehlo.{name}"](z) for name in names}
    cases = [complex_case(name, "f64", [real, imaginary], expected) for name, expected in known.items()]
    for case, both in zip(cases, results(cases), strict=True):
        got = together(*both.reshape(2, -1))
        np.testing.assert_allclose(got.real, case.expected.real, rtol=1e-15, err_msg=case.name)
        np.testing.assert_allclose(got.imag, case.expected.imag, rtol=1e-15, err_msg=case.name)


def test_scalars_are_reshaped_to_scalars() -> None:
    cases = [
        Case(
            f"reshape of a scalar of {element}", [(np.array(7, dtype), element)],
            lambda number, names, kind=f"tensor<{element}>": (
                f"%r{number} = stablehlo.reshape {names[0]} : ({kind}) -> {kind}"
            ),
            f"tensor<{element}>", np.array(7, dtype),
        )
        for element, dtype in (SIGNED | UNSIGNED).items()
    ]
    for case, found in zip(cases, results(cases), strict=True):
        np.testing.assert_array_equal(found, case.expected, case.name)
