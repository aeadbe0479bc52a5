"""LLVM IR narrowed to OpenCL's vectors computes what it did before: both run on this processor."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest

from motet.compiler.codegen.llvm.legalise.narrow import narrowed
from motet.compiler.targets.host import host_triple

LANES = (1, 2, 3, 5, 7, 16, 17, 24, 31, 33)
_EDGES = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5, 3.0], np.float32)
_DECLARED = """
declare <{n} x float> @llvm.minimum.v{n}f32(<{n} x float>, <{n} x float>)
declare <{n} x float> @llvm.maximum.v{n}f32(<{n} x float>, <{n} x float>)
declare <{n} x i32> @llvm.smax.v{n}i32(<{n} x i32>, <{n} x i32>)
declare i32 @llvm.vector.reduce.add.v{n}i32(<{n} x i32>)
declare i32 @llvm.vector.reduce.umin.v{n}i32(<{n} x i32>)
declare float @llvm.vector.reduce.fadd.v{n}f32(float, <{n} x float>)
declare float @llvm.vector.reduce.fmaximum.v{n}f32(<{n} x float>)
declare <{n} x float> @llvm.masked.load.v{n}f32.p0(ptr, i32, <{n} x i1>, <{n} x float>)
declare void @llvm.masked.store.v{n}f32.p0(<{n} x float>, ptr, i32, <{n} x i1>)
declare <{n} x float> @llvm.masked.gather.v{n}f32.v{n}p0(<{n} x ptr>, i32, <{n} x i1>, <{n} x float>)
"""
_F = "store <{n} x float> %r, ptr %c, align 4"
_I = "store <{n} x i32> %r, ptr %c, align 4"
_ONE_I, _ONE_F = "store i32 %r, ptr %c, align 4", "store float %r, ptr %c, align 4"
_M = "%m = fcmp olt <{n} x float> %x, splat (float 1.0)\n"
BODIES = {
    "arithmetic": "%s = fadd <{n} x float> %x, %y\n%r = fmul <{n} x float> %s, splat (float 0.5)\n" + _F,
    "conversions": "%t = trunc <{n} x i32> %i to <{n} x i8>\n%r = sext <{n} x i8> %t to <{n} x i32>\n" + _I,
    "minimum": "%r = call <{n} x float> @llvm.minimum.v{n}f32(<{n} x float> %x, <{n} x float> %y)\n" + _F,
    "maximum": "%r = call <{n} x float> @llvm.maximum.v{n}f32(<{n} x float> %x, <{n} x float> %y)\n" + _F,
    "maximum of a constant": "%r = call <{n} x float> @llvm.maximum.v{n}f32(<{n} x float> %x, <{n} x float> "
                             "splat (float 0.0))\n" + _F,
    "minimum of a constant": "%r = call <{n} x float> @llvm.minimum.v{n}f32(<{n} x float> splat (float 0.0), "
                             "<{n} x float> %y)\n" + _F,
    "greatest integer": "%r = call <{n} x i32> @llvm.smax.v{n}i32(<{n} x i32> %i, <{n} x i32> %j)\n" + _I,
    "selection": _M + "%r = select <{n} x i1> %m, <{n} x float> %x, <{n} x float> %y\n" + _F,
    "bits to floats": _M + "%r = uitofp <{n} x i1> %m to <{n} x float>\n" + _F,
    "a number of bits": _M + "%w = bitcast <{n} x i1> %m to i{n}\n%v = bitcast i{n} %w to <{n} x i1>\n"
                             "%r = zext <{n} x i1> %v to <{n} x i32>\n" + _I,
    "sum": "%r = call i32 @llvm.vector.reduce.add.v{n}i32(<{n} x i32> %i)\n" + _ONE_I,
    "least": "%r = call i32 @llvm.vector.reduce.umin.v{n}i32(<{n} x i32> %i)\n" + _ONE_I,
    "sum in order": "%r = call float @llvm.vector.reduce.fadd.v{n}f32(float 0.5, <{n} x float> %y)\n" + _ONE_F,
    "greatest, or NaN": "%r = call float @llvm.vector.reduce.fmaximum.v{n}f32(<{n} x float> %x)\n" + _ONE_F,
    "masked load": _M + "%r = call <{n} x float> @llvm.masked.load.v{n}f32.p0(ptr %b, i32 4, <{n} x i1> %m, "
                        "<{n} x float> %x)\n" + _F,
    "masked store": _M + "call void @llvm.masked.store.v{n}f32.p0(<{n} x float> %x, ptr %c, i32 4, <{n} x i1> %m)",
    "gather": _M + "%k = urem <{n} x i32> %i, splat (i32 {n})\n%l = zext <{n} x i32> %k to <{n} x i64>\n"
              "%p = getelementptr float, ptr %b, <{n} x i64> %l\n"
              "%r = call <{n} x float> @llvm.masked.gather.v{n}f32.v{n}p0(<{n} x ptr> %p, i32 4, <{n} x i1> %m, "
              "<{n} x float> %x)\n" + _F,
    "bytes": "%t = bitcast <{n} x i32> %i to <{four} x i8>\n%u = add <{four} x i8> %t, splat (i8 1)\n"
             "%r = bitcast <{four} x i8> %u to <{n} x i32>\n" + _I,
    "reversal": "%r = shufflevector <{n} x i32> %i, <{n} x i32> poison, <{n} x i32> <{reversed}>\n" + _I,
    "interleaving": "%s = shufflevector <{n} x i32> %i, <{n} x i32> %j, <{two} x i32> <{interleaved}>\n"
                    "store <{two} x i32> %s, ptr %c, align 4",
    "a field of a structure": "%p = getelementptr {{ i8, [3 x i32] }}, ptr %c, i64 1, i32 1, i64 1\n"
                              "store <{n} x i32> %i, ptr %p, align 4",
    "an element of any lane": "%e = load i32, ptr %a, align 4\n%q = urem i32 %e, {n}\n"
                              "%v = extractelement <{n} x i32> %i, i32 %q\n"
                              "%r = insertelement <{n} x i32> %j, i32 %v, i32 %q\n" + _I,
}  # fmt: skip


def _text(body: str, n: int) -> str:
    given = {
        "n": n, "two": 2 * n, "four": 4 * n, "reversed": ", ".join(f"i32 {lane}" for lane in reversed(range(n))),
        "interleaved": ", ".join(f"i32 {lane // 2 + lane % 2 * n}" for lane in range(2 * n)),
    }
    loads = "\n".join(
        f"%{name} = load <{n} x {kind}>, ptr %{array}, align 4"
        for name, kind, array in (("x", "float", "a"), ("y", "float", "b"), ("i", "i32", "a"), ("j", "i32", "b"))
    )
    body = body.format(**given)
    return f"define void @k(ptr %a, ptr %b, ptr %c) {{\nentry:\n{loads}\n{body}\nret void\n}}\n{_DECLARED.format(n=n)}"


def _run(text: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(host_triple()).create_target_machine()
    module = llvm.parse_assembly(text)
    module.verify()
    with llvm.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(engine.get_function_address("k"))
        result = np.zeros(4 * a.size + 64, np.uint32)
        call(a.ctypes.data, b.ctypes.data, result.ctypes.data)
    return result


@pytest.mark.parametrize("name", BODIES)
def test_instructions_on_parts_compute_the_same(name: str) -> None:
    random = np.random.default_rng(7)
    for n in LANES:
        a, b = (random.choice(_EDGES, n).astype(np.float32) for _ in range(2))
        if name == "sum in order":
            b = random.standard_normal(n).astype(np.float32)
        text = str(llvm.parse_assembly(_text(BODIES[name], n)))
        for lanes in ((16, 8, 4, 2), (4, 2)):
            np.testing.assert_array_equal(_run(narrowed(text, lanes), a, b), _run(text, a, b), f"{n} lanes")


PAIRS = """
define void @k(ptr %a, ptr %b, ptr %c) {
entry:
  %x = load i128, ptr %a, align 8
  %q = getelementptr i128, ptr %a, i64 1
  %y = load i128, ptr %q, align 8
  %less = icmp slt i128 %x, %y
  %above = icmp uge i128 %x, %y
  %m = select i1 %less, i128 %x, i128 %y
  %s = shl i128 %m, 24
  %h = lshr i128 %s, 72
  %z = ashr i128 %y, 9
  %o = xor i128 %h, %z
  store i128 %o, ptr %c, align 8
  %t = trunc i128 %h to i64
  %w = sext i64 %t to i128
  %r = getelementptr i128, ptr %c, i64 1
  store i128 %w, ptr %r, align 8
  %e = zext i1 %above to i32
  %p = getelementptr i8, ptr %c, i64 32
  store i32 %e, ptr %p, align 4
  ret void
}
"""


def test_integers_of_128_bits_are_pairs() -> None:
    random = np.random.default_rng(8)
    for _ in range(20):
        a = random.integers(-(2**63), 2**63 - 1, 4)
        a[random.integers(0, 2, 4) == 0] = 5  # equal halves
        a = a.view(np.float32)
        found = narrowed(PAIRS)
        assert "i128" not in found
        np.testing.assert_array_equal(_run(found, a, a), _run(PAIRS, a, a))


def test_what_has_no_form_is_told() -> None:
    with pytest.raises(NotImplementedError, match="mul of integers of 128 bits"):
        narrowed("define void @k(i128 %x) {\nentry:\n  %y = mul i128 %x, %x\n  ret void\n}\n")
