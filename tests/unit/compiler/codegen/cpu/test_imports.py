"""No kernel imports what is not there where it is loaded, and none that does becomes part of an artifact."""

from __future__ import annotations

import ctypes
import itertools

import ml_dtypes
import numpy as np
import pytest

import motet
from motet.compiler.codegen.backend import UnloadableCode
from motet.compiler.codegen.cpu.imports import available, check_imports
from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units
from motet.compiler.targets.cpu import AARCH64, CPU_TARGETS, X86_64_V3
from motet.compiler.targets.families import families
from motet.runtime.drivers.host.loader import host_machine

RV64GC = families()["riscv"].targets["rv64gc"]
HOSTS = "host{cpu=x86-64-v3+aarch64+riscv64}"
FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
INTEGERS = ("i1", "i8", "i16", "i32", "i64")
UNARY = (
    "absf acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 floor log log10 log1p log2 round "
    "roundeven rsqrt sin sinh sqrt tan tanh trunc"
)
BINARY = ("math.atan2", "math.copysign", "math.powf", "arith.divf", "arith.remf", "arith.maximumf", "arith.minnumf")
WHOLE = ("divsi", "divui", "remsi", "remui", "ceildivsi", "floordivsi", "muli")


def function(name: str, given: list[str], wanted: str, body: str) -> str:
    """A function that computes `%y` of `%x0`, `%x1`, … element by element, in a loop."""
    arguments = ", ".join(f"%a{i}: tensor<7x{kind}>" for i, kind in enumerate(given))
    reads = "\n".join(f"    %x{i} = tensor.extract %a{i}[%i] : tensor<7x{kind}>" for i, kind in enumerate(given))
    return f"""func.func @{name}({arguments}) -> tensor<7x{wanted}> {{
  %e = tensor.empty() : tensor<7x{wanted}>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %r = scf.for %i = %c0 to %c7 step %c1 iter_args(%t = %e) -> tensor<7x{wanted}> {{
{reads}
    {body}
    %u = tensor.insert %y into %t[%i] : tensor<7x{wanted}>
    scf.yield %u : tensor<7x{wanted}>
  }}
  return %r : tensor<7x{wanted}>
}}
"""


def cast(given: str, wanted: str) -> str:
    if FLOATS[given] == FLOATS[wanted]:
        body = f"%m = arith.extf %x0 : {given} to f32\n    %y = arith.truncf %m : f32 to {wanted}"
    else:
        operation = "extf" if FLOATS[given] < FLOATS[wanted] else "truncf"
        body = f"%y = arith.{operation} %x0 : {given} to {wanted}"
    return function(f"{given}_{wanted}", [given], wanted, body)


def programs() -> list[str]:
    found = [cast(*pair) for pair in itertools.permutations(FLOATS, 2)]
    for number in FLOATS:
        for operation, integer in itertools.product(("sitofp", "uitofp"), INTEGERS):
            body = f"%y = arith.{operation} %x0 : {integer} to {number}"
            found.append(function(f"{operation}_{integer}_{number}", [integer], number, body))
        for operation, integer in itertools.product(("fptosi", "fptoui"), INTEGERS):
            body = f"%y = arith.{operation} %x0 : {number} to {integer}"
            found.append(function(f"{operation}_{number}_{integer}", [number], integer, body))
        for name in UNARY.split():
            found.append(function(f"{name}_{number}", [number], number, f"%y = math.{name} %x0 : {number}"))
        for name in BINARY:
            body = f"%y = {name} %x0, %x1 : {number}"
            found.append(function(f"{name.split('.')[1]}_{number}", [number] * 2, number, body))
    for integer, name in itertools.product(INTEGERS, WHOLE):
        found.append(function(f"{name}_{integer}", [integer] * 2, integer, f"%y = arith.{name} %x0, %x1 : {integer}"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("devices", [HOSTS, "riscv{vlen=256}"])
def test_every_cast_and_function_of_every_type_can_be_loaded(devices: str) -> None:
    """An artifact is not written otherwise."""
    every = programs()
    for begin in range(0, len(every), 60):
        motet.compile("".join(every[begin : begin + 60]), devices=devices, cache=False)


@pytest.mark.skipif(host_machine() != "x86_64", reason="the code is x86-64's")
def test_casts_round_once() -> None:
    pairs = [("f64", "bf16"), ("f64", "f16"), ("f32", "bf16"), ("f16", "bf16"), ("bf16", "f16")]
    text = "".join(cast(*pair) for pair in pairs)
    types = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
    values = np.array([1.00390625, 1 + 2.0**-8 + 2.0**-40, -3e38, np.nan, 6.1e-5, -0.0, np.inf])
    with motet.load(motet.compile(text, devices="host{cpu=x86-64-v3+riscv64}")) as session:
        for given, wanted in pairs:
            with np.errstate(over="ignore"):
                x = values.astype(types[given])
                expected = x.astype(types[wanted]).astype(np.float64)
            if (given, wanted) == ("f64", "bf16"):
                expected[1] = 1.0078125  # by way of float, as ml_dtypes goes, it would be a tie
            np.testing.assert_array_equal(session[f"{given}_{wanted}"](x).astype(np.float64), expected)


@pytest.mark.parametrize(("target", "name"), [(X86_64_V3, "nowhere"), (AARCH64, "nowhere"), (RV64GC, "malloc")])
def test_a_kernel_that_imports_what_is_not_there_is_one_error(target: object, name: str) -> None:
    text = f"declare void @{name}(ptr)\ndefine void @k(ptr %x) {{\n  call void @{name}(ptr %x)\n  ret void\n}}\n"
    (code,) = compile_units([ObjectUnit("k", text, False)], target, 1)  # type: ignore[arg-type]
    with pytest.raises(UnloadableCode, match=f"kernel k: its code for .* calls {name}; expected functions of the "):
        check_imports("k", code, target)  # type: ignore[arg-type]
    (code,) = compile_units([ObjectUnit("k", text.replace(name, "free"), False)], CPU_TARGETS["riscv64"], 1)
    check_imports("k", code, CPU_TARGETS["riscv64"])


WIDE = """
func.func @main(%a: tensor<7xi64>, %b: tensor<7xi64>) -> tensor<7xi64> {
  %e = tensor.empty() : tensor<7xi64>
  %r = linalg.map ins(%a, %b : tensor<7xi64>, tensor<7xi64>) outs(%e : tensor<7xi64>)
    (%x: i64, %y: i64, %o: i64) {
      %w = arith.extsi %x : i64 to i128
      %v = arith.extsi %y : i64 to i128
      %m = arith.muli %w, %w : i128
      %d = arith.divsi %m, %v : i128
      %t = arith.trunci %d : i128 to i64
      linalg.yield %t : i64
    }
  return %r : tensor<7xi64>
}
"""


def test_a_kernel_that_its_device_cannot_load_runs_on_what_that_falls_back_to() -> None:
    with pytest.raises(motet.CompileError, match=r"<string>:4:8: kernel main_.* for riscv:rv64gcv128 calls __divti3;"):
        motet.compile(WIDE, devices="riscv")
    artifact = motet.compile(WIDE, devices={"acc": "riscv,@cpu", "cpu": "host"})
    a, b = np.array([3, -5, 1 << 40, 7, 1, 0, -(1 << 62)]), np.array([2, 3, 1 << 20, -7, 5, 1, 1 << 62])
    wanted = [abs(x * x) // abs(y) * (1 if y > 0 else -1) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    with motet.load(artifact) as session:
        np.testing.assert_array_equal(session(a, b), wanted)


@pytest.mark.skipif(host_machine() != "x86_64", reason="libraries of another machine may lack some")
def test_what_is_taken_to_be_there_is_there() -> None:
    libraries = [ctypes.CDLL(name) for name in (None, "libm.so.6", "libgcc_s.so.1")]
    for name in available(X86_64_V3):
        assert any(hasattr(library, name) for library in libraries), name
