"""Functions on memrefs: which value a tensor taken from a buffer is."""

from __future__ import annotations

import numpy as np
from tests.prepared import load_mlir
from tests.unit.compiler.building import X86_64_V3, build

import motet
from motet.compiler.verify.oracle import run_oracle

ARITHMETIC_ON_WHAT_A_BUFFER_HOLDS = """
func.func @main(%x: memref<4xf32>, %out: memref<4xf32>) {
  %0 = bufferization.to_tensor %x restrict : memref<4xf32>
  %1 = bufferization.to_tensor %out restrict : memref<4xf32>
  %2 = arith.mulf %0, %0 : tensor<4xf32>
  %3 = arith.addf %1, %2 : tensor<4xf32>
  bufferization.materialize_in_destination %3 in restrict writable %out : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}
"""


def test_arithmetic_takes_tensors_of_buffers() -> None:
    x, out = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)
    build(ARITHMETIC_ON_WHAT_A_BUFFER_HOLDS, X86_64_V3)(x, out)
    np.testing.assert_array_equal(out, 10 + x * x)


def test_a_tensor_keeps_what_its_buffer_held_when_it_was_taken() -> None:
    text = """
    func.func @main(%x: memref<3xf32>, %y: memref<3xf32>) -> tensor<3xf32> {
      %before = bufferization.to_tensor %x : memref<3xf32> to tensor<3xf32>
      linalg.copy ins(%y : memref<3xf32>) outs(%x : memref<3xf32>)
      %after = bufferization.to_tensor %x : memref<3xf32> to tensor<3xf32>
      %0 = linalg.sub ins(%after, %before : tensor<3xf32>, tensor<3xf32>) outs(%after : tensor<3xf32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }
    """
    x, y = np.array([1, 2, 3], np.float32), np.array([10, 20, 30], np.float32)
    results = run_oracle(load_mlir(text, "x.mlir"), "main", [x.copy(), y.copy()])
    np.testing.assert_array_equal(results[0], y - x)


ROWS_WITH_CONDITIONS = """
func.func @main(%x: memref<7x5xf32>, %out: memref<7x5xf32>) -> memref<7xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %c5 = arith.constant 5 : index
  %z = arith.constant 0.0 : f32
  %s = memref.alloc() : memref<7xf32>
  scf.for %i = %c0 to %c7 step %c1 {
    memref.store %z, %s[%i] : memref<7xf32>
    scf.for %j = %c0 to %c5 step %c1 {
      %v = memref.load %x[%i, %j] : memref<7x5xf32>
      %p = arith.cmpf ogt, %v, %z : f32
      scf.if %p {
        memref.store %v, %out[%i, %j] : memref<7x5xf32>
        %a = memref.load %s[%i] : memref<7xf32>
        %b = arith.addf %a, %v : f32
        memref.store %b, %s[%i] : memref<7xf32>
      }
    }
  }
  return %s : memref<7xf32>
}
"""


def test_loops_and_branches_write_buffers() -> None:
    x, out = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32), np.full((7, 5), 9, np.float32)
    sums, _ = build(ROWS_WITH_CONDITIONS, X86_64_V3)(x, out)
    np.testing.assert_allclose(sums, np.where(x > 0, x, 0).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(out, np.where(x > 0, x, 9))


def test_a_loop_of_unknown_length_steps_through_what_it_wrote_before() -> None:
    text = """
    func.func @main(%x: memref<?xi32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c1000 = arith.constant 1000 : i32
      %n = memref.dim %x, %c0 : memref<?xi32>
      %end = scf.while (%i = %c1) : (index) -> index {
        %inside = arith.cmpi slt, %i, %n : index
        scf.condition(%inside) %i : index
      } do {
      ^bb0(%i: index):
        %before = arith.subi %i, %c1 : index
        %a = memref.load %x[%before] : memref<?xi32>
        %b = memref.load %x[%i] : memref<?xi32>
        %sum = arith.addi %a, %b : i32
        memref.store %sum, %x[%i] : memref<?xi32>
        %next = arith.addi %i, %c1 : index
        scf.yield %next : index
      }
      %old = memref.atomic_rmw addi %c1000, %x[%c0] : (i32, memref<?xi32>) -> i32
      return
    }
    """
    x = np.arange(1, 12, dtype=np.int32)
    want = np.cumsum(x, dtype=np.int32)
    want[0] += 1000
    build(text, X86_64_V3)(x)
    np.testing.assert_array_equal(x, want)


def test_buffers_of_one_type_that_a_loop_writes_are_different_memory() -> None:
    text = """
    func.func @main(%x: memref<6xi32>, %out: memref<6xi32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c6 = arith.constant 6 : index
      %seven = arith.constant 7 : i32
      %a = memref.alloc() : memref<6xi32>
      %b = memref.alloc() : memref<6xi32>
      linalg.fill ins(%seven : i32) outs(%a : memref<6xi32>)
      linalg.fill ins(%seven : i32) outs(%b : memref<6xi32>)
      scf.for %i = %c0 to %c6 step %c1 {
        %v = memref.load %x[%i] : memref<6xi32>
        %w = arith.muli %v, %v : i32
        %at = arith.index_cast %v : i32 to index
        memref.store %v, %a[%at] : memref<6xi32>
        memref.store %w, %b[%at] : memref<6xi32>
      }
      scf.for %i = %c0 to %c6 step %c1 {
        %v = memref.load %a[%i] : memref<6xi32>
        %w = memref.load %b[%i] : memref<6xi32>
        %s = arith.subi %w, %v : i32
        memref.store %s, %out[%i] : memref<6xi32>
      }
      return
    }
    """  # places that data say: the loop is not raised
    x = np.array([3, 1, 4, 0, 5, 1], np.int32)
    a, b = np.full(6, 7, np.int32), np.full(6, 7, np.int32)
    a[x], b[x] = x, x * x
    out = np.zeros(6, np.int32)
    np.testing.assert_array_equal(run_oracle(load_mlir(text, "x.mlir"), "main", [x, out.copy()])[0], b - a)
    build(text, X86_64_V3)(x, out)
    np.testing.assert_array_equal(out, b - a)


LEFT_AS_THEY_ARE = """
func.func @itself(%o: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %n = memref.dim %o, %c0 : memref<?xf32>
  affine.for %i = 0 to %n {
    %v = affine.load %o[%i] : memref<?xf32>
    affine.store %v, %o[%i] : memref<?xf32>
  }
  return
}
func.func @nothing(%x: memref<8xf32>, %o: memref<8xf32>) -> memref<8xf32> {
  affine.for %i = 5 to 5 {
    %v = affine.load %x[%i] : memref<8xf32>
    affine.store %v, %o[%i] : memref<8xf32>
  }
  return %x : memref<8xf32>
}
func.func @one_of_two(%x: memref<8xf32>, %o: memref<8xf32>) {
  affine.for %i = 0 to 8 {
    %v = affine.load %x[%i] : memref<8xf32>
    affine.store %v, %o[%i] : memref<8xf32>
    affine.store %v, %x[%i] : memref<8xf32>
  }
  return
}
"""


def test_buffers_that_a_function_leaves_as_they_are() -> None:
    session = build(LEFT_AS_THEY_ARE, X86_64_V3)
    x, o = np.arange(8, dtype=np.float32), np.full(8, -1, np.float32)
    for count in (0, 1, 8):
        session["itself"](x[:count])
    for found, wanted in zip(session["nothing"](x, o), (np.arange(8), np.full(8, -1)), strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(x, np.arange(8))
    np.testing.assert_array_equal(o, np.full(8, -1))
    session["one_of_two"](x, o)
    np.testing.assert_array_equal(x, np.arange(8))
    np.testing.assert_array_equal(o, np.arange(8))


def test_stores_of_unrolled_loops_share_kernels() -> None:
    """Sums of products, a statement for each term; every other result also reads one that a loop nest computes."""
    lines: list[str] = []
    for term in range(90):
        at, k = term // 9, term % 9
        read = "%t" if at % 2 else "%x"
        lines += [
            f"%a{term} = memref.load {read}[%c{k}] : memref<10xf32>",
            f"%b{term} = memref.load %y[%c{at}] : memref<10xf32>",
            f"%p{term} = arith.mulf %a{term}, %a{term} : f32", f"%s{term} = arith.addf %b{term}, %p{term} : f32",
            f"memref.store %s{term}, %y[%c{at}] : memref<10xf32>",
        ]
    constants = "\n".join(f"%c{k} = arith.constant {k} : index" for k in range(10))
    text = f"""func.func @main(%x: memref<10xf32>, %y: memref<10xf32>, %t: memref<10xf32>) {{
{constants}
affine.for %i = 0 to 10 {{
  %v = affine.load %x[%i] : memref<10xf32>
  %w = arith.addf %v, %v : f32
  affine.store %w, %t[%i] : memref<10xf32>
}}
""" + "\n".join(lines) + "\nreturn\n}\n"
    x, y, t = np.arange(10, dtype=np.float32), np.ones(10, np.float32), np.zeros(10, np.float32)
    right = np.array([1 + np.sum((x[:9] * (2 if at % 2 else 1)) ** 2) for at in range(10)], np.float32)
    artifact = motet.compile(text, devices="host{cpu=x86-64-v3}", cache=False)
    [variant] = artifact.manifest.variants
    assert len(variant.schedules["main"].commands) < 15  # of 91 statements
    with motet.load(artifact) as session:
        session(x, y, t)
    np.testing.assert_array_equal(y, right)


def test_unrolled_sums_into_several_elements_are_one_kernel() -> None:
    """Each sum begins with the element that it is stored into; the last also reads an element that was stored."""
    lines: list[str] = []
    for row in range(5):
        lines.append(f"%s{row}_0 = affine.load %y[{row}] : memref<6xf32>")
        for k in range(4):
            lines += [
                f"%a{row}_{k} = affine.load %x[{row}, {k}] : memref<5x4xf32>",
                f"%b{row}_{k} = affine.load %y[{5 if k else max(row - 1, 0)}] : memref<6xf32>",
                f"%p{row}_{k} = arith.mulf %a{row}_{k}, %b{row}_{k} : f32",
                f"%s{row}_{k + 1} = arith.addf %s{row}_{k}, %p{row}_{k} : f32",
            ]
        lines.append(f"affine.store %s{row}_4, %y[{row}] : memref<6xf32>")
    text = "func.func @main(%x: memref<5x4xf32>, %y: memref<6xf32>) {\n" + "\n".join(lines) + "\nreturn\n}\n"
    x, y = np.arange(20, dtype=np.float32).reshape(5, 4) % 7, np.arange(1, 7, dtype=np.float32)
    right = y.copy()
    for row in range(5):
        right[row] += x[row, 0] * right[max(row - 1, 0)] + right[5] * np.sum(x[row, 1:])
    artifact = motet.compile(text, devices="host{cpu=x86-64-v3}", cache=False)
    [variant] = artifact.manifest.variants
    assert [command.op for command in variant.schedules["main"].commands].count("dispatch") == 1
    with motet.load(artifact) as session:
        session(x, y)
    np.testing.assert_array_equal(y, right)
