"""Microkernels of users in nests: C, LLVM IR and kernels of artifacts, what is refused, and results against numpy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import motet
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.schedule import decode_schedule, encode_schedule
from motet.errors import OptionError
from motet.lab.language import parse_schedule, schedule
from motet.lab.microkernels import accepted, read_microkernel
from motet.lab.subject import KernelSubject, compile_with, expect_legal, open_program, subject_of
from motet.runtime.session import load

pytest.importorskip("yaml")
needs_c = pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("clang")), reason="needs a C compiler")

PRODUCT_C = """
#include <stdint.h>
static float twice(float x) {{ return {factor}.0f * x; }}
void product(const float *A, const float *B, float *C, int64_t A_0, int64_t B_0, int64_t C_0, int64_t k)
{{
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 8; j++) {{
            float sum = 0;
            for (int64_t p = 0; p < k; p++) sum += A[i * A_0 + p] * B[p * B_0 + j];
            C[i * C_0 + j] += twice(sum) * 0.5f;
        }}
}}
"""
PRODUCT = "meaning: C[i, j] += A[i, k] * B[k, j]\noperands: {A: f32, B: f32, C: f32}\nsizes: {i: 3, j: 8}\n"
ROWS_LL = """
define void @rows(ptr %A, ptr %C, i64 %A_0, i64 %k) {
entry:
  br label %rows
rows:
  %i = phi i64 [ 0, %entry ], [ %next_i, %done ]
  %row = mul i64 %i, %A_0
  %to = getelementptr double, ptr %C, i64 %i
  %before = load double, ptr %to
  br label %terms
terms:
  %p = phi i64 [ 0, %rows ], [ %next, %terms ]
  %max = phi double [ %before, %rows ], [ %more, %terms ]
  %at = add i64 %row, %p
  %from = getelementptr double, ptr %A, i64 %at
  %x = load double, ptr %from
  %more = call double @llvm.maximum.f64(double %max, double %x)
  %next = add i64 %p, 1
  %again = icmp slt i64 %next, %k
  br i1 %again, label %terms, label %done
done:
  store double %more, ptr %to
  %next_i = add i64 %i, 1
  %on = icmp slt i64 %next_i, 4
  br i1 %on, label %rows, label %end
end:
  ret void
}
declare double @llvm.maximum.f64(double, double)
"""
ROWS = "meaning: C[i] = max(C[i], A[i, k])\noperands: {A: f64, C: f64}\nsizes: {i: 4}\n"


def written(folder: Path, name: str, text: str, code: str, suffix: str = ".c") -> Path:
    (folder / f"{name}{suffix}").write_text(code)
    path = folder / f"{name}.yaml"
    path.write_text(f"{text}code: {name}{suffix}\n")
    return path


def subject(text: str) -> KernelSubject:
    return subject_of(open_program(text))


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Microkernel:
    if not (shutil.which("gcc") or shutil.which("clang")):
        pytest.skip("needs a C compiler")
    file = written(tmp_path_factory.mktemp("product"), "product", PRODUCT, PRODUCT_C.format(factor=2))
    return accepted(read_microkernel(file), subject("matmul:9x16x8"))


def run(given: KernelSubject, text: Any, kernel: Microkernel, *arrays: Any) -> Any:
    found = parse_schedule(text, given.kernel, [kernel]) if isinstance(text, str) else text
    expect_legal(given, found)
    assert decode_schedule(encode_schedule(found)) == found
    with load(bytes(compile_with(given, found).data)) as session:
        return np.asarray(session["main"](*arrays))


def random(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("text", [
    '{"i": {"parallelize"}, "j": {}, "i#3": {"tensorize": "product"}, "k": {}, "j#8": {"vectorize"}}',
    '{"i": {}, "j": {}, "k": {}, "k#7": {"tensorize": "product"}, "i#3": {}, "j#8": {}, "B": {"pack": "k"}}',
    '{"j": {"parallelize"}, "k": {}, "i": {}, "j#16": {}, "i#3": {"tensorize": "product"}, "k#11": {}, "j#8": {}, '
    '"A": {"pack": {"at": "i", "padding": 3}}}',
    '{"i": {}, "j": {}, "k": {}, "k#13": {}, "i#3": {"tensorize": "product"}, "j#8": {}, "k#5": {"unroll"}, '
    '"C": {"buffer": "j"}}',
    '{"k": {"split_reduction"}, "i": {}, "j": {}, "k#20": {"tensorize": "product"}, "i#3": {}, "j#8": {}}',
    '{"i[0:12]": {"j": {}, "i#3": {"tensorize": "product"}, "j#8": {}, "k": {}}, "i[12:]": {"j": {}, "k": {}}}',
])
def test_products_by_a_microkernel_in_c(text: str, product: Microkernel) -> None:
    """Whole tiles and others, with packs, buffers, partial sums, and in a part of a dimension."""
    a, b = random(16, 41), random(41, 27)
    found = run(subject("matmul:16x27x41"), text, product, a, b)
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def test_a_product_inside_a_convolution(product: Microkernel) -> None:
    """The loops of w, f and c are a product for each b, h, r and s; padding is left to the other loops."""
    given = subject("conv2d:1x7x9x5,3x3x5x16:pad=1")
    image, filters = random(1, 7, 9, 5), random(3, 3, 5, 16)
    text = ('{"b": {"parallelize"}, "h": {"parallelize"}, "w": {}, "f": {}, "r": {}, "s": {}, '
            '"w#3": {"tensorize": "product"}, "c": {}, "f#8": {"vectorize"}}')
    padded = np.pad(image.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = sum(
        np.einsum("bhwc,cf->bhwf", padded[:, r : r + 7, s : s + 9], filters[r, s]) for r in range(3) for s in range(3)
    )
    np.testing.assert_allclose(run(given, text, product, image, filters), wanted, rtol=1e-4, atol=1e-4)


def test_a_microkernel_in_llvm_ir(tmp_path: Path) -> None:
    source = tmp_path / "rows.mlir"
    source.write_text("""
    func.func @main(%x: tensor<10x33xf64>) -> tensor<10xf64> {
      %low = arith.constant 0xFFF0000000000000 : f64
      %e = tensor.empty() : tensor<10xf64>
      %f = linalg.fill ins(%low : f64) outs(%e : tensor<10xf64>) -> tensor<10xf64>
      %r = linalg.reduce { arith.maximumf } ins(%x : tensor<10x33xf64>) outs(%f : tensor<10xf64>) dimensions = [1]
      return %r : tensor<10xf64>
    }""")
    given = subject(str(source))
    kernel = accepted(read_microkernel(written(tmp_path, "rows", ROWS, ROWS_LL, ".ll")), given)
    x = random(10, 33, dtype=np.float64)
    x[3, 5], x[7, 2] = np.nan, np.inf
    s = schedule(given.kernel)
    i, k = s.loops()
    s.parallelize(i)
    inner = s.strip_mine(i, 4)
    s.interchange(i, inner, k)
    s.tensorize(inner, kernel)
    np.testing.assert_array_equal(run(given, s.data(), kernel, x), x.max(axis=1))


def test_the_kernel_of_an_artifact(tmp_path: Path) -> None:
    """A product of 4x16x8 that the compiler made is the microkernel of a larger one; its operands are packed."""
    source = tmp_path / "tile.mlir"
    source.write_text("""
    func.func @tile(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>, %c: tensor<4x16xf32>) -> tensor<4x16xf32> {
      %r = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x16xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
      return %r : tensor<4x16xf32>
    }""")
    given = subject("matmul:18x40x24")
    level = given.listed.target.replace(":", "{cpu=") + "}"
    motet.compile(str(source), devices=level).save(tmp_path / "tile.motet")
    path = tmp_path / "tile.yaml"
    path.write_text("meaning: C[i, j] += A[i, k] * B[k, j]\noperands: {A: f32, B: f32, C: f32}\n"
                    "sizes: {i: 4, j: 16, k: 8}\ncode: tile.motet\n")
    kernel = accepted(read_microkernel(path), given)
    text = ('{"i": {"parallelize"}, "j": {}, "k": {}, "i#4": {"tensorize": "tile"}, "k#8": {}, "j#16": {"vectorize"}, '
            '"A": {"pack": "k"}, "B": {"pack": "k"}}')
    a, b = random(18, 24), random(24, 40)
    np.testing.assert_allclose(run(given, text, kernel, a, b), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
    bare = text.replace(', "A": {"pack": "k"}, "B": {"pack": "k"}', "")
    with pytest.raises(OptionError, match=r"tensorize of i#4: A of tile is not dense.*expected a pack of that operand"):
        run(given, bare, kernel, a, b)


@pytest.mark.parametrize("text, told", [
    ('{"i": {}, "j": {}, "i#4": {"tensorize": "product"}, "j#8": {}, "k": {}}',
     "tensorize of i#4: i has 4 elements there, i of the microkernel 3"),
    ('{"i": {}, "j": {}, "k": {}, "i#3": {"tensorize": "product"}, "j#8": {}}',
     "tensorize of i#3: its operands do not move along i, j as those of the microkernel along i, j, k"),
    ('{"i": {}, "j": {}, "i#3": {"tensorize": "other"}, "j#8": {}, "k": {}}',
     "tensorize of i#3: no microkernel other is known; expected one of product"),
    ('{"i": {}, "i#3": {"tensorize": "product"}, "j": {}, "j#8": {}, "k": {}}',
     "tensorize of i#3: j has 27 elements there, j of the microkernel 8"),
])
def test_loops_that_are_not_the_microkernel_are_refused(text: str, told: str, product: Microkernel) -> None:
    with pytest.raises(OptionError) as error:
        parse_schedule(text, subject("matmul:16x27x41").kernel, [product])
    assert told in str(error.value)


def test_operands_of_another_layout_or_type_are_refused(product: Microkernel, tmp_path: Path) -> None:
    source = tmp_path / "transposed.mlir"
    source.write_text("""
    func.func @main(%a: tensor<16x24xf32>, %b: tensor<40x24xf32>) -> tensor<16x40xf32> {
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<16x40xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16x40xf32>) -> tensor<16x40xf32>
      %r = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>,
        affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<16x24xf32>, tensor<40x24xf32>) outs(%f : tensor<16x40xf32>) {
        ^bb0(%x: f32, %y: f32, %z: f32):
          %t = arith.mulf %x, %y : f32
          %s = arith.addf %z, %t : f32
          linalg.yield %s : f32
      } -> tensor<16x40xf32>
      return %r : tensor<16x40xf32>
    }""")
    given = subject(str(source))
    text = '{"i": {}, "j": {}, "i#3": {"tensorize": "product"}, "k": {}, "j#8": {}}'
    a, b = random(16, 24), random(40, 24)
    with pytest.raises(OptionError, match=r"the last axis of B of product is not contiguous: its stride is 24"):
        run(given, text, product, a, b)
    packed = text[:-1] + ', "B": {"pack": "j"}}'
    np.testing.assert_allclose(run(given, packed, product, a, b), a.astype(np.float64) @ b.T, rtol=1e-4, atol=1e-4)
    with pytest.raises(OptionError, match=r"its body is not that of|would be of f64"):
        run(subject("matmul:16x40x24xf64"), text, product, a, b)


@needs_c
@pytest.mark.parametrize("text, code, told", [
    (PRODUCT, PRODUCT_C.format(factor=3), "it is not C[i, j] += A[i, k] * B[k, j]"),  # wrong sums
    (PRODUCT, PRODUCT_C.format(factor=2).replace("int64_t A_0, int64_t B_0", "int64_t B_0, int64_t A_0"),  # interface
     "it is not C[i, j]"),
    (PRODUCT, PRODUCT_C.format(factor=2).replace("float sum = 0;", "float sum = *(volatile float *)0;"), "crashed"),
    (PRODUCT, PRODUCT_C.format(factor=2).replace("void product", "void other"), "does not define product"),
    (PRODUCT, "int main( {", "error"),
    (PRODUCT + "flags: -DX=(\ncompiler: no-such-cc\n", "", "there is no compiler no-such-cc"),
])
def test_code_that_is_not_its_meaning_is_not_accepted(text: str, code: str, told: str, tmp_path: Path) -> None:
    file = written(tmp_path, "product", text, code)
    with pytest.raises(OptionError) as error:
        accepted(read_microkernel(file), subject("matmul:9x16x8"))
    assert told in str(error.value) and "Traceback" not in str(error.value)


@pytest.mark.parametrize("change, told", [
    (("C[i, j] +=", "C[i, j] ="), "are not in C, which does not add them up"),
    (("A[i, k]", "A[i - k]"), "i - k is no index"),
    (("C[i, j]", "C[i + j]"), "C[i + j] is no element of a result"),
    (("B: f32", "B: f64"), "mul of f32 and f64"),
    (("B: f32", "B: float"), "operand B has the type float"),
    (("sizes: {i: 3, j: 8}", "sizes: {i: 3, z: 8}"), "there is no dimension z"),
    (("sizes: {i: 3, j: 8}", "sizes: {i: three}"), "expected a number of elements"),
    (("A[i, k] * B[k, j]", "A[i, k] @ B[k, j]"), "there is no such operator"),
    (("A[i, k] * B[k, j]", "foo(A[i, k]) * B[k, j]"), "there is no function foo of f32"),
    (("meaning:", "means:"), "there is no such entry"),
    (("code: product.c", "code: product.rs"), "it is of another kind"),
    (("code: product.c", "code: missing.c"), "there is no such file"),
])
def test_files_with_mistakes_are_refused(change: tuple[str, str], told: str, tmp_path: Path) -> None:
    file = written(tmp_path, "product", PRODUCT, "")
    text = file.read_text()
    assert change[0] in text
    file.write_text(text.replace(*change))
    with pytest.raises(OptionError) as error:
        read_microkernel(file)
    assert told in str(error.value) and str(file) in str(error.value)


def test_without_a_compiler_the_error_says_how_to_install_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = subject("matmul:9x16x8")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(OptionError, match=r"clang and gcc are not installed; apt install gcc, or give LLVM IR"):
        accepted(read_microkernel(written(tmp_path, "product", PRODUCT, "")), given)
