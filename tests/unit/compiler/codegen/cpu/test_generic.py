"""The generic path against numpy, and against upstream's naive lowering where numpy has no counterpart."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from tests.unit.compiler.building import run_oracle_text
from tests.unit.compiler.codegen.cpu.generic_calls import emit, run

from motet.artifact.dtypes import DTYPES
from motet.compiler.codegen.cpu.generic.generic import emit_generic
from motet.compiler.codegen.cpu.objects import ObjectUnit, assembly, compile_units
from motet.compiler.codegen.cpu.select import generate
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.cpu import CPU_TARGETS, RISCV64, X86_64_V3, X86_64_V4, CpuTarget
from motet.errors import CompileError

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def unary(dtype: str, body: str, shape: str = "?x?") -> str:
    dims = [i for i, size in enumerate(shape.split("x")) if size == "?"]
    sizes = "\n".join(
        f"%c{i} = arith.constant {i} : index %n{i} = tensor.dim %a, %c{i} : tensor<{shape}x{dtype}>"
        for i in dims
    )
    return f"""
    #id = affine_map<(i, j) -> (i, j)>
    func.func @main(%a: tensor<{shape}x{dtype}>) -> tensor<{shape}x{dtype}> {{
      {sizes}
      %e = tensor.empty({", ".join(f"%n{i}" for i in dims)}) : tensor<{shape}x{dtype}>
      %0 = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}}
        ins(%a : tensor<{shape}x{dtype}>) outs(%e : tensor<{shape}x{dtype}>) {{
      ^bb0(%x: {dtype}, %o: {dtype}):
        {body}
        linalg.yield %r : {dtype}
      }} -> tensor<{shape}x{dtype}>
      return %0 : tensor<{shape}x{dtype}>
    }}"""


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("shape", [(1, 1), (13, 37), (64, 129), (0, 5), (5, 0)])
def test_elementwise_functions_of_dynamic_shape_run_in_tasks(shape: tuple[int, int], splits: int) -> None:
    a = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    text = unary("f32", "%m = arith.mulf %x, %x : f32 %r = arith.subf %m, %x : f32")
    assert emit(text).code.phases[0].tasks == "s0"
    assert emit(text).extents == (("argument", 0, 0), ("argument", 0, 1), ("result", 0, 0), ("result", 0, 1))
    np.testing.assert_array_equal(run(text, [a], [shape], splits)[0], a * a - a)


@pytest.mark.parametrize(
    "operation",
    ["exp", "tanh", "log", "erf", "sinh", "expm1", "log1p", "sqrt", "rsqrt", "floor", "cbrt", "sin"],
)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("f16", np.dtype(np.float16)), ("bf16", BFLOAT16), ("f32", np.dtype(np.float32)),
     ("f64", np.dtype(np.float64))],
)
def test_elementary_functions_agree_with_the_c_library(operation: str, name: str, dtype: np.dtype) -> None:
    a = np.random.default_rng(2).uniform(0.05, 5, (7, 33)).astype(dtype)
    text = unary(name, f"%r = math.{operation} %x : {name}", "7x33")
    (result,) = run(text, [a], [a.shape], 2)
    (expected,) = run_oracle_text(text, "main", [a])
    tolerance = 6 * float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(
        result.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance / 8
    )


def test_elementary_functions_of_special_numbers() -> None:
    a = np.array([[np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, 200.0, -200.0]], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(unary("f32", "%r = math.exp %x : f32"), [a], [a.shape])[0][:, :5],
                                      np.exp(a)[:, :5])
        np.testing.assert_array_equal(run(unary("f32", "%r = math.tanh %x : f32"), [a], [a.shape])[0][:, :5],
                                      np.tanh(a)[:, :5])


@pytest.mark.parametrize("target", [X86_64_V3, X86_64_V4], ids=lambda target: target.name)
def test_loops_with_elementary_functions_are_vectorised(target: CpuTarget) -> None:
    text = unary("f32", "%r = math.exp %x : f32", "64x1024")
    code = assembly(ObjectUnit("k", emit(text).code.llvm, optimise=True), target)
    assert re.search(rf"vfmadd\w+ps.*%{'zmm' if target is X86_64_V4 else 'ymm'}", code)
    assert "expf" not in code


@pytest.mark.parametrize("target", [X86_64_V3, X86_64_V4], ids=lambda target: target.name)
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_half_precision_needs_no_helper_functions(name: str, target: CpuTarget) -> None:
    body = f"%m = arith.mulf %x, %x : {name} %s = arith.addf %m, %x : {name} %r = math.tanh %s : {name}"
    text = unary(name, body)
    code = assembly(ObjectUnit("k", emit(text).code.llvm, optimise=True), target)
    assert "call" not in code


@pytest.mark.parametrize(("name", "dtype"), [("f16", np.dtype(np.float16)), ("bf16", BFLOAT16)])
def test_half_precision_rounds_after_every_operation(name: str, dtype: np.dtype) -> None:
    a = np.random.default_rng(3).normal(size=(9, 50)).astype(dtype)
    text = unary(name, f"%m = arith.mulf %x, %x : {name} %r = arith.addf %m, %x : {name}")
    np.testing.assert_array_equal(run(text, [a], [a.shape])[0].view(np.uint16), (a * a + a).view(np.uint16))


@pytest.mark.parametrize("dtype", ["i1", "i8", "i16", "i32", "i64"])
def test_integers_of_every_width(dtype: str) -> None:
    kind = DTYPES[dtype]
    a = np.random.default_rng(4).integers(0, 2 if dtype == "i1" else 100, (5, 19)).astype(kind)
    text = unary(dtype, f"%m = arith.muli %x, %x : {dtype} %r = arith.subi %m, %x : {dtype}")
    wide = a.astype(np.int64)
    expected = (wide * wide - wide) % 2 if dtype == "i1" else wide * wide - wide
    np.testing.assert_array_equal(run(text, [a], [a.shape])[0], expected.astype(kind))


MATMUL = """
func.func @main(%a: tensor<?x7xf32>, %b: tensor<7x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %z = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x7xf32>
  %n = tensor.dim %b, %c1 : tensor<7x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x7xf32>, tensor<7x?xf32>)
                     outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}"""


@pytest.mark.parametrize("shape", [(1, 1), (11, 5), (32, 17)])
def test_matrix_products(shape: tuple[int, int]) -> None:
    generator = np.random.default_rng(5)
    a = generator.normal(size=(shape[0], 7)).astype(np.float32)
    b = generator.normal(size=(7, shape[1])).astype(np.float32)
    np.testing.assert_allclose(run(MATMUL, [a, b], [shape], 4)[0], a @ b, rtol=1e-5, atol=1e-5)


COLUMN_SUMS = """
#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>
func.func @main(%a: tensor<16x9xf32>) -> tensor<9xf32> {
  %z = arith.constant dense<0.0> : tensor<9xf32>
  %0 = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]}
    ins(%a : tensor<16x9xf32>) outs(%z : tensor<9xf32>) {
  ^bb0(%x: f32, %s: f32):
    %r = arith.addf %x, %s : f32
    linalg.yield %r : f32
  } -> tensor<9xf32>
  return %0 : tensor<9xf32>
}"""
TRANSPOSED = """
func.func @main(%a: tensor<6x6xf32>) -> tensor<6x6xf32> {
  %e = tensor.empty() : tensor<6x6xf32>
  %0 = linalg.exp ins(%a : tensor<6x6xf32>) outs(%e : tensor<6x6xf32>) -> tensor<6x6xf32>
  %1 = linalg.matmul ins(%0, %0 : tensor<6x6xf32>, tensor<6x6xf32>)
                     outs(%a : tensor<6x6xf32>) -> tensor<6x6xf32>
  return %1 : tensor<6x6xf32>
}"""
LOOP = """
func.func @main(%a: tensor<?xf32>, %n: tensor<i64>) -> (tensor<?xf32>, tensor<f32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %half = arith.constant 0.5 : f32
  %k = tensor.extract %n[] : tensor<i64>
  %count = arith.index_cast %k : i64 to index
  %d = tensor.dim %a, %c0 : tensor<?xf32>
  %r = scf.for %i = %c0 to %count step %c1 iter_args(%t = %a) -> tensor<?xf32> {
    %e = tensor.empty(%d) : tensor<?xf32>
    %u = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                         iterator_types = ["parallel"]}
      ins(%t : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%x: f32, %o: f32):
      %y = arith.mulf %x, %half : f32
      linalg.yield %y : f32
    } -> tensor<?xf32>
    scf.yield %u : tensor<?xf32>
  }
  %first = tensor.extract %r[%c0] : tensor<?xf32>
  %s = tensor.from_elements %first : tensor<f32>
  return %r, %s : tensor<?xf32>, tensor<f32>
}"""
GATHER = """
func.func @main(%table: tensor<10x4xf32>, %at: tensor<?xi64>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %at, %c0 : tensor<?xi64>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
    ins(%at : tensor<?xi64>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%p: i64, %o: f32):
    %row = arith.index_cast %p : i64 to index
    %column = linalg.index 1 : index
    %v = tensor.extract %table[%row, %column] : tensor<10x4xf32>
    linalg.yield %v : f32
  } -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}"""
MANY = """
func.func private @helper(%x: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %e = tensor.empty() : tensor<4x3xf32>
  %0 = linalg.softmax dimension(1) ins(%x : tensor<4x3xf32>) outs(%e : tensor<4x3xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}
func.func @main(%a: tensor<4x5xf32>, %b: tensor<4x3xf32>)
    -> (tensor<4x8xf32>, tensor<4x3xf32>, tensor<8x11xf32>, tensor<4x5xf32>, tensor<2xi32>) {
  %c = tensor.concat dim(1) %a, %b : (tensor<4x5xf32>, tensor<4x3xf32>) -> tensor<4x8xf32>
  %s = call @helper(%b) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %z = arith.constant 7.0 : f32
  %p = tensor.pad %a low[1, 2] high[3, 4] {
  ^bb0(%x: index, %y: index):
    tensor.yield %z : f32
  } : tensor<4x5xf32> to tensor<8x11xf32>
  %k = arith.constant dense<[3, -7]> : tensor<2xi32>
  return %c, %s, %p, %a, %k
    : tensor<4x8xf32>, tensor<4x3xf32>, tensor<8x11xf32>, tensor<4x5xf32>, tensor<2xi32>
}"""
COMPLEX = """
func.func @main(%a: tensor<5xcomplex<f32>>) -> tensor<5xcomplex<f32>> {
  %e = tensor.empty() : tensor<5xcomplex<f32>>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                       iterator_types = ["parallel"]}
    ins(%a : tensor<5xcomplex<f32>>) outs(%e : tensor<5xcomplex<f32>>) {
  ^bb0(%x: complex<f32>, %o: complex<f32>):
    %y = complex.mul %x, %x : complex<f32>
    %z = complex.exp %y : complex<f32>
    linalg.yield %z : complex<f32>
  } -> tensor<5xcomplex<f32>>
  return %0 : tensor<5xcomplex<f32>>
}"""


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(6).normal(size=shape).astype(np.float32)


CASES = {
    "column sums": (COLUMN_SUMS, [normal(16, 9)], [(9,)]),
    "rows that other rows read": (TRANSPOSED, [normal(6, 6)], [(6, 6)]),
    "gather": (GATHER, [normal(10, 4), np.array([3, 9, 0, 3, 3])], [(5, 4)]),
    "loop": (LOOP, [normal(13), np.array(4)], [(13,), ()]),
    "loop that never runs": (LOOP, [normal(13), np.array(0)], [(13,), ()]),
    "many results": (MANY, [normal(4, 5), normal(4, 3)], [(4, 8), (4, 3), (8, 11), (4, 5), (2,)]),
    "complex numbers": (COMPLEX, [normal(10).view(np.complex64)], [(5,)]),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_agree_with_the_naive_lowering(name: str) -> None:
    text, inputs, shapes = CASES[name]
    results = run(text, inputs, shapes, 3)
    for got, want in zip(results, run_oracle_text(text, "main", inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


def test_rows_that_depend_on_one_another_are_one_task() -> None:
    assert emit(COLUMN_SUMS).code.phases[0].tasks == 1
    assert emit(TRANSPOSED).code.phases[0].tasks == 1
    assert emit(LOOP).code.phases[0].tasks == 1


def test_rows_of_several_loops_are_split_together() -> None:
    assert emit(MATMUL).code.phases[0].tasks == ["max", "s0", "s2"]
    assert emit(GATHER).code.phases[0].tasks == "s0"


def test_memory_is_given_back() -> None:
    text = LOOP
    code = emit(text).code.llvm
    assert "@malloc" in code
    assert "@free" in code
    usage = []
    big = normal(1 << 20)
    for _ in range(2):
        run(text, [big, np.array(50)], [big.shape, ()])
        with open("/proc/self/statm") as file:  # noqa: PTH123
            usage.append(int(file.read().split()[1]) * 4096)
    assert usage[1] - usage[0] < 50 * big.nbytes // 4


@pytest.mark.parametrize("name", CPU_TARGETS)
def test_every_target_compiles_it(name: str) -> None:
    for text in (MATMUL, LOOP, MANY, unary("bf16", "%r = math.exp %x : bf16")):
        unit = ObjectUnit("k", emit(text).code.llvm, optimise=True)
        assert compile_units([unit], CPU_TARGETS[name], 1)[0][:4] == b"\x7fELF"


def test_only_the_kernel_is_visible_to_other_objects() -> None:
    unit = ObjectUnit("k", emit(MANY).code.llvm, optimise=True)
    text = assembly(unit, RISCV64)
    assert re.findall(r"\.globl\s+(\w+)", text) == ["kernel_0"]


def test_an_operation_without_lowering_is_an_error_that_names_it() -> None:
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "nowhere.strange"(%a) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    with pytest.raises(CompileError, match=r"nowhere\.strange"):
        emit(text)


def test_loops_call_products_with_packed_weights() -> None:
    text = """
    func.func @main(%h: tensor<2x64xf32>, %w: tensor<64x80xf32> {motet.constant}, %v: tensor<80x64xf32>,
        %n: tensor<3xf32>) -> tensor<2x64xf32> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c9 = arith.constant 9 : index
      %p = arith.constant dense<0.0> : tensor<2x80xf32>
      %q = arith.constant dense<0.0> : tensor<2x64xf32>
      %r = scf.for %i = %c0 to %c9 step %c1 iter_args(%s = %h) -> tensor<2x64xf32> {
        %a = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
            affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%s, %w : tensor<2x64xf32>, tensor<64x80xf32>) outs(%p : tensor<2x80xf32>) {
        ^bb0(%x: f32, %y: f32, %o: f32):
          %m = arith.mulf %x, %y : f32
          %t = arith.addf %o, %m : f32
          linalg.yield %t : f32
        } -> tensor<2x80xf32>
        %b = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
            affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%a, %v : tensor<2x80xf32>, tensor<80x64xf32>) outs(%q : tensor<2x64xf32>) {
        ^bb0(%x: f32, %y: f32, %o: f32):
          %m = arith.mulf %x, %y : f32
          %t = arith.addf %o, %m : f32
          linalg.yield %t : f32
        } -> tensor<2x64xf32>
        scf.yield %b : tensor<2x64xf32>
      }
      return %r : tensor<2x64xf32>
    }"""
    context = ir.Context()
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown():
        function = ir.SymbolTable(ir.Module.parse(text).operation)["main"].operation
        made = emit_generic(function, "kernel_0", True, lambda kernel: generate(kernel, X86_64_V3))
    assert len(made.code.parts) == 2
    assert made.operands == (0, 2, 3, 1)  # the constant is read packed alone
    assert [packing is not None for packing in made.packings] == [False, False, False, True]
    assert "fmul" not in made.code.llvm
