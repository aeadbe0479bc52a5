"""Objects convert 16-bit floats by themselves: they import no function of a compiler's run-time library."""

from __future__ import annotations

import ctypes
import itertools

import ml_dtypes
import numpy as np
import pytest

from motet.compiler.codegen.cpu.emit.half_precision import CONVERSIONS
from motet.compiler.codegen.cpu.imports import available, imported
from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units
from motet.compiler.targets.cpu import CPU_TARGETS, X86_64_V3
from motet.compiler.targets.families import families
from motet.runtime.drivers.host.loader import host_machine, load_objects

TARGETS = {**CPU_TARGETS, **families()["riscv"].targets}
QUICK = ("x86-64-v3", "x86-64-v4", "aarch64", "riscv64", "rv64gcv256")
EVERY = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TARGETS]
FLOATS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
INTEGERS = ("i1", "i8", "i24", "i32", "i64")
ARITHMETIC = ("fadd", "fsub", "fmul", "fdiv")
INTRINSICS = ("fma", "sqrt", "fabs", "floor", "ceil", "trunc", "rint", "roundeven", "copysign", "maximum", "minimum")


def casts() -> list[tuple[str, str, str]]:
    """Every conversion between two types: operation, from, to."""
    found = [
        ("fpext" if FLOATS[a] < FLOATS[b] else "fptrunc", a, b)
        for a, b in itertools.permutations(FLOATS, 2) if FLOATS[a] != FLOATS[b]
    ]
    for number, integer in itertools.product(FLOATS, INTEGERS):
        found += [(op, integer, number) for op in ("sitofp", "uitofp")]
        found += [(op, number, integer) for op in ("fptosi", "fptoui")]
    return found


def function(name: str, given: str, wanted: str, operation: str) -> str:
    return (
        f"define void @{name}(ptr %from, ptr %to) {{\n  %x = load {given}, ptr %from\n"
        f"  %y = {operation} {given} %x to {wanted}\n  store {wanted} %y, ptr %to\n  ret void\n}}\n"
    )


def imports(target: str, text: str, optimise: bool = False) -> set[str]:
    (code,) = compile_units([ObjectUnit("unit", text, optimise)], TARGETS[target], 1)
    return imported(code, "unit")


@pytest.mark.parametrize("target", EVERY)
def test_conversions_import_nothing(target: str) -> None:
    """By themselves and in vectors, each in an object of its own kind: what one brings along must not help others."""
    for kind in FLOATS:
        lines = [
            function(f"f{number}_{width}", width.format(given), width.format(wanted), operation)
            for number, (operation, given, wanted) in enumerate(casts()) if kind in (given, wanted)
            for width in ("{}", "<4 x {}>")
        ]
        assert not imports(target, "\n".join(lines).replace("{}", "1").replace("<4 x 1>", "4")), kind
    for operation, given, wanted in casts():
        if operation == "fptrunc":
            assert not imports(target, function("f", given, wanted, operation), optimise=True), (given, wanted)


@pytest.mark.parametrize("target", EVERY)
def test_arithmetic_on_narrow_floats_imports_nothing_else(target: str) -> None:
    """What LLVM computes in float, and what it calls of the mathematics library there."""
    lines: list[str] = []
    for kind in ("half", "bfloat"):
        for operation in ARITHMETIC:
            lines += [
                f"define void @{operation}_{kind}(ptr %a, ptr %b) {{", f"  %x = load <4 x {kind}>, ptr %a",
                f"  %y = load <4 x {kind}>, ptr %b", f"  %s = {operation} <4 x {kind}> %x, %y",
                f"  %c = fcmp ult <4 x {kind}> %s, %x", f"  %r = select <4 x i1> %c, <4 x {kind}> %s, <4 x {kind}> %y",
                f"  store <4 x {kind}> %r, ptr %a", "  ret void", "}",
            ]
        suffix = "f16" if kind == "half" else "bf16"
        for name in INTRINSICS:
            count = {"fma": 3, "copysign": 2, "maximum": 2, "minimum": 2}.get(name, 1)
            operands = ", ".join([f"{kind} %x"] * count)
            lines += [
                f"declare {kind} @llvm.{name}.{suffix}({', '.join([kind] * count)})",
                f"define void @{name}_{kind}(ptr %a) {{", f"  %x = load {kind}, ptr %a",
                f"  %r = call {kind} @llvm.{name}.{suffix}({operands})", f"  store {kind} %r, ptr %a",
                "  ret void", "}",
            ]
    assert imports(target, "\n".join(lines)) <= available(TARGETS[target]) - CONVERSIONS.keys()


@pytest.mark.skipif(host_machine() != "x86_64", reason="the code is x86-64's")
@pytest.mark.parametrize(("narrow", "dtype"), [("half", np.float16), ("bfloat", ml_dtypes.bfloat16)])
@pytest.mark.parametrize(("wide", "given"), [("float", np.float32), ("double", np.float64)])
def test_conversions_round_once_to_even(narrow: str, dtype: type, wide: str, given: type) -> None:
    """Near every boundary between two narrow numbers, of both signs; infinities and NaN."""
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):  # ml_dtypes raises it for NaN
        numbers = np.sort(every[np.isfinite(every)].astype(np.float64))
    overflow = (3 * numbers[-1] - numbers[-2]) / 2  # half a step beyond the largest number
    between = np.concatenate([(numbers[1:] + numbers[:-1]) / 2, [overflow, -overflow]])
    nearby = np.concatenate([numbers, between, np.nextafter(between, np.inf), np.nextafter(between, -np.inf),
                             [np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-310, 5e-324]])
    with np.errstate(over="ignore"):
        values = nearby.astype(given)
    at = np.searchsorted(numbers, values.astype(np.float64))
    found = convert(values, wide, narrow, dtype).astype(np.float64)
    assert np.isnan(found[np.isnan(values)]).all()
    low, high = numbers[np.maximum(at - 1, 0)], numbers[np.minimum(at, len(numbers) - 1)]
    inside = np.isfinite(values) & (np.abs(values.astype(np.float64)) <= numbers[-1])
    exact = values.astype(np.float64)[inside]
    error = np.abs(found[inside] - exact)
    nearest = np.minimum(np.abs(exact - low[inside]), np.abs(high[inside] - exact))
    np.testing.assert_array_equal(error, nearest)
    ties = np.abs(exact - low[inside]) == np.abs(high[inside] - exact)
    tied = found[inside][ties & (low[inside] != high[inside])].astype(dtype).view(np.uint16)
    assert len(tied) > 60_000 and not (tied & 1).any()
    beyond = np.abs(values.astype(np.float64)) >= overflow
    assert beyond.sum() > 3 and np.isinf(found[beyond]).all()


def convert(values: np.ndarray, wide: str, narrow: str, dtype: type) -> np.ndarray:
    """`values` in `narrow`, by code that calls a function where it can."""
    text = (
        f"define void @convert(ptr %from, ptr %to, i64 %count) {{\nentry:\n  br label %loop\nloop:\n"
        f"  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n  %at = getelementptr {wide}, ptr %from, i64 %i\n"
        f"  %x = load {wide}, ptr %at\n  %y = fptrunc {wide} %x to {narrow}\n"
        f"  %into = getelementptr {narrow}, ptr %to, i64 %i\n  store {narrow} %y, ptr %into\n"
        "  %next = add i64 %i, 1\n  %more = icmp ult i64 %next, %count\n  br i1 %more, label %loop, label %end\n"
        "end:\n  ret void\n}\n"
    )
    code = load_objects(compile_units([ObjectUnit("convert", text, False)], X86_64_V3, 1), {})
    result = np.empty(len(values), dtype)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.address("convert"))
    call(values.ctypes.data, result.ctypes.data, len(values))
    return result
