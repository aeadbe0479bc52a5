"""MLIR text into programs: spellings, destination-passing style, constants, errors at the user's place."""

from __future__ import annotations

import io
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.prepared import load_mlir, load_source

import motet
from motet.compiler.frontends.normaliser import Edit, Edited, Source
from motet.compiler.placement.place import Place
from motet.compiler.verify.oracle import run_oracle
from motet.errors import CompileError

RNG = np.random.default_rng(7)
FILE = "model.mlir"


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def text_of(source: str) -> str:
    return str(load_mlir(source, FILE).module)


def run(source: str, function: str, *inputs: np.ndarray) -> list[np.ndarray]:
    return run_oracle(load_mlir(source, FILE), function, inputs)


# -- destination-passing style ---------------------------------------------------------------------

FRAGMENT = """
module @fragment_name {
  func.func @entry(%arg0: memref<64x128xf32>, %arg1: memref<128x128xf32>, %arg2: memref<64x128xf32>) {
    %0 = bufferization.to_tensor %arg0 restrict : memref<64x128xf32>
    %1 = bufferization.to_tensor %arg1 restrict : memref<128x128xf32>
    %2 = tensor.empty() : tensor<64x128xf32>
    %cst = arith.constant 0.000000e+00 : f32
    %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<64x128xf32>) -> tensor<64x128xf32>
    %4 = linalg.matmul ins(%0, %1 : tensor<64x128xf32>, tensor<128x128xf32>)
      outs(%3 : tensor<64x128xf32>) -> tensor<64x128xf32>
    %5 = tensor.empty() : tensor<64x128xf32>
    %6 = linalg.add ins(%4, %0 : tensor<64x128xf32>, tensor<64x128xf32>)
      outs(%5 : tensor<64x128xf32>) -> tensor<64x128xf32>
    bufferization.materialize_in_destination %6 in restrict writable %arg2
      : (tensor<64x128xf32>, memref<64x128xf32>) -> ()
    return
  }
}
"""


def test_a_mark_of_the_encoding_before_the_text_is_none_of_it():
    marked = load_source(b"\xef\xbb\xbf" + FRAGMENT.encode(), FILE)
    assert str(marked.module) == text_of(FRAGMENT)


def test_a_fragment_in_destination_passing_style_keeps_its_arguments():
    a, b, out = normal(64, 128), normal(128, 128), normal(64, 128)
    text = text_of(FRAGMENT)
    assert "%arg2: tensor<64x128xf32>) -> (tensor<64x128xf32> {motet.destination = 2 : i64})" in text
    (found,) = run(FRAGMENT, "entry", a, b, out)
    np.testing.assert_allclose(found, a @ b + a, rtol=1e-4, atol=1e-4)


def test_linalg_on_memrefs_becomes_linalg_on_tensors():
    source = """func.func @f(%a: memref<4x8xf32>, %b: memref<8x4xf32>, %c: memref<4x4xf32>) {
      %z = arith.constant 0.0 : f32
      %t = memref.alloc() : memref<4x4xf32>
      linalg.fill ins(%z : f32) outs(%t : memref<4x4xf32>)
      linalg.matmul ins(%a, %b : memref<4x8xf32>, memref<8x4xf32>) outs(%t : memref<4x4xf32>)
      linalg.exp ins(%t : memref<4x4xf32>) outs(%c : memref<4x4xf32>)
      linalg.add ins(%t, %c : memref<4x4xf32>, memref<4x4xf32>) outs(%c : memref<4x4xf32>)
      memref.dealloc %t : memref<4x4xf32>
      return }"""
    a, b = normal(4, 8), normal(8, 4)
    (found,) = run(source, "f", a, b, normal(4, 4))
    np.testing.assert_allclose(found, np.exp(a @ b) + a @ b, rtol=1e-4, atol=1e-5)


def test_an_argument_read_after_it_was_written_has_the_new_values():
    source = """func.func @f(%a: memref<6xf32>, %b: memref<6xf32>) {
      linalg.exp ins(%a : memref<6xf32>) outs(%a : memref<6xf32>)
      %t = bufferization.to_tensor %a restrict : memref<6xf32>
      %s = arith.addf %t, %t : tensor<6xf32>
      bufferization.materialize_in_destination %s in writable %b : (tensor<6xf32>, memref<6xf32>) -> ()
      return }"""
    a = normal(6)
    first, second = run(source, "f", a, normal(6))
    np.testing.assert_allclose(first, np.exp(a), rtol=1e-5)
    np.testing.assert_allclose(second, 2 * np.exp(a), rtol=1e-5)
    assert "motet.destination = 0" in text_of(source) and "motet.destination = 1" in text_of(source)


def test_views_write_through_to_their_buffer():
    source = """func.func @f(%a: memref<4x6xf32>, %s: f32) {
      %v = memref.subview %a[1, 2] [2, 3] [1, 1]
        : memref<4x6xf32> to memref<2x3xf32, strided<[6, 1], offset: 8>>
      linalg.fill ins(%s : f32) outs(%v : memref<2x3xf32, strided<[6, 1], offset: 8>>)
      %flat = memref.collapse_shape %a [[0, 1]] : memref<4x6xf32> into memref<24xf32>
      %t = memref.alloc() : memref<24xf32>
      linalg.exp ins(%flat : memref<24xf32>) outs(%t : memref<24xf32>)
      memref.copy %t, %flat : memref<24xf32> to memref<24xf32>
      return }"""
    a = normal(4, 6)
    want = a.copy()
    want[1:3, 2:5] = 0.5
    (found,) = run(source, "f", a, np.array(0.5, np.float32))
    np.testing.assert_allclose(found, np.exp(want), rtol=1e-5)


def test_memref_results_dynamic_extents_globals_and_scalars():
    source = """
    #id = affine_map<(i, j) -> (i, j)>
    memref.global "private" constant @w : memref<4xf32> = dense<[1.0, 2.0, 3.0, 4.0]>
    func.func @f(%a: memref<?x4xf32>, %s: f32) -> (memref<?x4xf32>, f32) {
      %zero = arith.constant 0 : index
      %n = memref.dim %a, %zero : memref<?x4xf32>
      %w = memref.get_global @w : memref<4xf32>
      %t = memref.alloc(%n) : memref<?x4xf32>
      linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%a : memref<?x4xf32>) outs(%t : memref<?x4xf32>) {
        ^bb0(%x: f32, %o: f32):
          %i = linalg.index 1 : index
          %f = memref.load %w[%i] : memref<4xf32>
          %r = arith.mulf %x, %f : f32
          linalg.yield %r : f32
      }
      return %t, %s : memref<?x4xf32>, f32
    }"""
    a = normal(3, 4)
    product, scalar = run(source, "f", a, np.array(2.5, np.float32))
    np.testing.assert_array_equal(product, a * np.array([1, 2, 3, 4], np.float32))
    assert scalar.shape == () and scalar == 2.5


# -- spellings -------------------------------------------------------------------------------------


def named(operation: str, count: int, kind: str = "tensor<4x6xf32>") -> str:
    inputs = ", ".join(f"%x{i}" for i in range(count))
    arguments = ", ".join(f"%x{i}: {kind}" for i in range(count))
    return f"""func.func @f({arguments}) -> {kind} {{
      %e = tensor.empty() : {kind}
      %r = {operation} ins({inputs} : {", ".join([kind] * count)}) outs(%e : {kind}) -> {kind}
      return %r : {kind} }}"""


@pytest.mark.parametrize(("operation", "reference"), [
    ("linalg.add", np.add), ("linalg.sub", np.subtract), ("linalg.mul", np.multiply),
    ("linalg.div", np.divide),
    ("linalg.max", np.maximum), ("linalg.min", np.minimum), ("linalg.powf", np.power),
    ("linalg.elemwise_binary", np.add),
    ("linalg.elemwise_binary {fun = #linalg.binary_fn<mul>}", np.multiply),
    ("linalg.elemwise_binary {cast = #linalg.type_fn<cast_signed>, fun = #linalg.binary_fn<sub>}",
     np.subtract),
])  # fmt: skip
def test_binary_operations_by_name(operation: str, reference: np.ufunc):
    a, b = np.abs(normal(4, 6)) + 0.5, normal(4, 6)
    (found,) = run(named(operation, 2), "f", a, b)
    np.testing.assert_allclose(found, reference(a, b), rtol=1e-5)


@pytest.mark.parametrize(("operation", "reference"), [
    ("linalg.exp", np.exp), ("linalg.log", np.log), ("linalg.abs", np.abs), ("linalg.ceil", np.ceil),
    ("linalg.floor", np.floor), ("linalg.negf", np.negative), ("linalg.tanh", np.tanh),
    ("linalg.sqrt", np.sqrt),
    ("linalg.rsqrt", lambda x: 1 / np.sqrt(x)), ("linalg.square", np.square),
    ("linalg.reciprocal", np.reciprocal),
    ("linalg.copy", np.copy), ("linalg.elemwise_unary", np.exp),
    ("linalg.elemwise_unary {fun = #linalg.unary_fn<tanh>}", np.tanh),
])  # fmt: skip
def test_unary_operations_by_name(operation: str, reference):
    a = np.abs(normal(4, 6)) + 0.5
    (found,) = run(named(operation, 1), "f", a)
    np.testing.assert_allclose(found, reference(a), rtol=1e-5)


@pytest.mark.parametrize(("operation", "left", "right", "subscripts"), [
    ("matmul_transpose_a", (5, 3), (5, 7), "km,kn->mn"),
    ("matmul_transpose_b", (3, 5), (7, 5), "mk,nk->mn"),
    ("batch_matmul", (2, 3, 5), (2, 5, 7), "bmk,bkn->bmn"),
    ("batch_matmul_transpose_a", (2, 5, 3), (2, 5, 7), "bkm,bkn->bmn"),
    ("batch_matmul_transpose_b", (2, 3, 5), (2, 7, 5), "bmk,bnk->bmn"),
])  # fmt: skip
def test_transposed_products_by_name(
    operation: str, left: tuple[int, ...], right: tuple[int, ...], subscripts: str
):
    a, b = normal(*left), normal(*right)
    want = np.einsum(subscripts, a, b)
    kinds = [f"tensor<{'x'.join(map(str, array.shape))}xf32>" for array in (a, b, want)]
    source = f"""func.func @f(%a: {kinds[0]}, %b: {kinds[1]}, %c: {kinds[2]}) -> {kinds[2]} {{
      %r = linalg.{operation} ins(%a, %b : {kinds[0]}, {kinds[1]}) outs(%c : {kinds[2]}) -> {kinds[2]}
      return %r : {kinds[2]} }}"""
    (found,) = run(source, "f", a, b, np.zeros_like(want))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_other_old_spellings():
    source = """func @f(%a: tensor<4x6xf32>, %n: index)
        -> (tensor<2x2x6xf32>, tensor<4x6xf32>, tensor<?x3xf32>) {
      %m = bufferization.to_memref %a : memref<4x6xf32>
      %b = bufferization.to_tensor %m restrict : memref<4x6xf32>
      %0 = tensor.expand_shape %b [[0, 1], [2]] : tensor<4x6xf32> into tensor<2x2x6xf32>
      %z = arith.constant dense<0.0> : tensor<4x6xf32>
      %1 = arith.maxf %a, %z : tensor<4x6xf32>
      %2 = linalg.init_tensor [%n, 3] : tensor<?x3xf32>
      %one = arith.constant 1.0 : f32
      %3 = linalg.fill ins(%one : f32) outs(%2 : tensor<?x3xf32>) -> tensor<?x3xf32>
      return %0, %1, %3 : tensor<2x2x6xf32>, tensor<4x6xf32>, tensor<?x3xf32> }"""
    a = normal(4, 6)
    shaped, positive, ones = run(source, "f", a, np.array(5))
    np.testing.assert_array_equal(shaped, a.reshape(2, 2, 6))
    np.testing.assert_array_equal(positive, np.maximum(a, 0))
    np.testing.assert_array_equal(ones, np.ones((5, 3), np.float32))


def test_iree_functions_are_functions():
    text = text_of(
        "util.func public @f(%a: tensor<4xf32>) -> tensor<4xf32> { util.return %a : tensor<4xf32> }"
    )
    assert "func.func @f" in text


def test_private_functions_are_inlined():
    text = text_of("""
    func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = func.call @g(%a) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32> }
    func.func private @g(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = math.tanh %a : tensor<4xf32>
      return %0 : tensor<4xf32> }""")
    assert "@g" not in text and "math.tanh" in text and "linalg.generic" in text


def test_tosa_is_lowered():
    a, b = normal(4, 6), normal(1, 6)
    (found,) = run("""func.func @f(%a: tensor<4x6xf32>, %b: tensor<1x6xf32>) -> tensor<4x6xf32> {
      %0 = tosa.add %a, %b : (tensor<4x6xf32>, tensor<1x6xf32>) -> tensor<4x6xf32>
      %1 = tosa.tanh %0 : (tensor<4x6xf32>) -> tensor<4x6xf32>
      return %1 : tensor<4x6xf32> }""", "f", a, b)  # fmt: skip
    np.testing.assert_allclose(found, np.tanh(a + b), rtol=1e-5)


# -- constants -------------------------------------------------------------------------------------


def test_large_floating_constants_become_parameters_and_small_ones_stay():
    f32, bf16 = normal(1024), normal(2048).astype(ml_dtypes.bfloat16)
    i8, i32 = np.arange(4096).astype(np.int8), np.arange(1024, dtype=np.int32)

    def hexadecimal(array: np.ndarray) -> str:
        return f'dense<"0x{array.tobytes().hex().upper()}">'

    shapes = ("1024xf32", "2048xbf16", "1024xf32", "4096xi8", "1024xi32", "2xf32")
    kinds = ", ".join(f"tensor<{shape}>" for shape in shapes)
    source = f"""func.func @f() -> ({kinds}, tensor<2xf32>, tensor<1024xf32>) {{
      %0 = arith.constant {hexadecimal(f32)} : tensor<1024xf32>
      %1 = arith.constant {hexadecimal(bf16)} : tensor<2048xbf16>
      %2 = arith.constant dense_resource<weights> : tensor<1024xf32>
      %3 = arith.constant {hexadecimal(i8)} : tensor<4096xi8>
      %4 = arith.constant {hexadecimal(i32)} : tensor<1024xi32>
      %5 = arith.constant dense_resource<small> : tensor<2xf32>
      %6 = "krnl.global"() {{name = "c", shape = [2], value = dense<[1.0, 3.0]> : tensor<2xf32>}}
        : () -> tensor<2xf32>
      %7 = arith.constant dense<2.0> : tensor<1024xf32>
      return %0, %1, %2, %3, %4, %5, %6, %7 : {kinds}, tensor<2xf32>, tensor<1024xf32> }}
    {{-# dialect_resources: {{ builtin: {{
      weights: "0x04000000{(f32 * 2).tobytes().hex()}", small: "0x040000000000803F00000040" }} }} #-}}"""
    program = load_mlir(source, FILE)
    assert sorted(program.parameters) == ["constant_0", "constant_1", "constant_3", "weights"]
    assert program.parameters["constant_1"].dtype == ml_dtypes.bfloat16
    assert not program.parameters["constant_0"].flags.owndata  # a view of the attribute
    results = run_oracle(program, "f", [])
    wanted = [f32, bf16, f32 * 2, i8, i32, np.array([1, 2]), np.array([1, 3]), np.full(1024, 2.0)]
    for found, want in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(found.astype(np.float64), want.astype(np.float64))


def test_the_same_constant_is_one_parameter():
    constant = f'arith.constant dense<"0x{normal(1024).tobytes().hex()}"> : tensor<1024xf32>'
    functions = "\n".join(
        f"func.func @f{i}() -> tensor<1024xf32> {{ %0 = {constant}\n return %0 : tensor<1024xf32> }}"
        for i in range(2)
    )
    program = load_mlir(functions, FILE)
    assert len(program.parameters) == 1
    assert str(program.module).count('motet.parameter = "constant_0"') == 2


# -- errors ----------------------------------------------------------------------------------------

BODY = "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {{\n  {}\n  return %0 : tensor<4xf32> }}"


@pytest.mark.parametrize(("source", "place", "message"), [
    (BODY.format("%0 = foo.bar %a : tensor<4xf32>"), "2:8", "foo.bar: unknown operation"),
    (BODY.format('%0 = "foo.bar"(%a) : (tensor<4xf32>) -> tensor<4xf32>'), "2:8",
     "foo.bar: unknown operation"),
    (BODY.format("%0 = linalg.frobnicate %a : tensor<4xf32>"), "2:8", "linalg.frobnicate: unknown operation"),
    (BODY.format("%0 = arith.addf %a, %b : tensor<4xf32>"), "2:23", "undeclared SSA value"),
    (BODY.format("%0 = arith.addf %a %a : tensor<4xf32>"), "2:21", "expected ','"),
    ("func.func @f(%a: tensor<*xf32>) { return }", "1:14", "unranked"),
    ("func.func @f(%a: memref<*xf32>) { return }", "1:14", "unranked"),
    ("func.func @f(\n  %x: f32, %a: memref<4x4xf32, affine_map<(i, j) -> (j, i)>>) { return }", "2:12",
     "layout"),
    ("func.func @f(%a: vector<4xf32>) { return }", "1:14", "argument 0 is vector<4xf32>"),
    ("func.func private @f(%a: tensor<4xf32>)", "1:1", "no public function"),
    ("func.func private @f(%a: tensor<4xf32>) { return }", "1:1", "no public function"),
    ("util.global private @gpu = #hal.device.alias<\"cud\"> : !hal.device", "1:46",
     "device alias 'cud': unknown; available: amdgpu, cpu, cuda"),
    (BODY.format("%0 = flow.tensor.transfer %a : tensor<4xf32> to #hal.device.promise<@gpu>"), "2:8",
     "transfer to @gpu names no device; declared: none"),
    (BODY.format("%0 = hal.tensor.import %a : tensor<4xf32>"), "3:3",
     "hal.tensor.import: expected `->`"),
    (BODY.format("%0 = hal.fence.create : tensor<4xf32>"), "2:8",
     "hal.fence.create: an operation of a program that is lowered already"),
    (BODY.format("%0 = arith.constant dense_resource<w> : tensor<4xf32>"), "2:8", "resource w has no data"),
    (BODY.format("%0 = call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>"), "2:8", "call of @f: it calls itself"),
    (BODY.format("%0 = call @g(%a) : (tensor<4xf32>) -> tensor<4xf32>")
     + "\nfunc.func private @g(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
     "  %0 = call @h(%a) : (tensor<4xf32>) -> tensor<4xf32>\n  return %0 : tensor<4xf32> }\n"
     "func.func private @h(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
     "  %0 = call @g(%a) : (tensor<4xf32>) -> tensor<4xf32>\n  return %0 : tensor<4xf32> }", "8:8",
     "call of @g: it calls itself"),
    (BODY.format("%g = constant @f : (tensor<4xf32>) -> tensor<4xf32>\n"
                 "  %0 = call_indirect %g(%a) : (tensor<4xf32>) -> tensor<4xf32>"), "3:8",
     "call of @f: it calls itself"),
    ("func.func @f(%a: memref<4xf32>, %d: memref<4xf32>, %n: index) {\n"
     "  %i = arith.constant 0 : index\n  %j = arith.constant 1 : index\n"
     "  %b, %c = scf.for %k = %i to %n step %j iter_args(%l = %a, %m = %d) -> (memref<4xf32>, memref<4xf32>) {\n"
     "    scf.yield %m, %l : memref<4xf32>, memref<4xf32>\n  }\n"
     "  memref.copy %b, %a : memref<4xf32> to memref<4xf32>\n  return }", "4:12",
     "scf.for: memrefs that loops and branches hand on are not supported"),
])  # fmt: skip
def test_errors_name_the_place_in_the_users_text(source: str, place: str, message: str):
    with pytest.raises(CompileError) as caught:
        load_mlir(source, FILE, Place((), automatic=False))
    assert message in caught.value.message
    assert str(caught.value.location) == f"{FILE}:{place}"
    assert "\n" not in str(caught.value)


def test_errors_after_a_rewritten_spelling_keep_their_column():
    line = "%1 = bufferization.to_tensor %a restrict : memref<4xf32>  %2 = arith.addf %1, %zz : tensor<4xf32>"
    source = f"func.func @f(%a: memref<4xf32>) {{\n  // größer\n  {line}\n  return }}"
    with pytest.raises(CompileError) as caught:
        load_mlir(source, FILE)
    location = caught.value.location
    assert location is not None
    assert (location.line, location.column) == (3, 3 + line.index("%zz"))


def test_operations_keep_the_users_location():
    program = load_mlir(FRAGMENT, FILE)
    text = program.module.operation.get_asm(enable_debug_info=True)
    line = next(i for i, content in enumerate(FRAGMENT.split("\n"), 1) if "linalg.add" in content)
    assert f'loc("{FILE}":{line}:10)' in text


@given(st.text("ab \n", max_size=40), st.data())
def test_positions_outside_edits_map_back_exactly(text: str, data: st.DataObject):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    edits = [
        Edit(begin, end, data.draw(st.text("xyz\n", max_size=5)))
        for begin, end in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    source = Source(text, FILE)
    edited = Edited(source, edits)
    for offset, char in enumerate(text):
        if any(edit.start <= offset < edit.end for edit in edits):
            continue
        shift = sum(len(e.text) - (e.end - e.start) for e in edits if e.end <= offset)
        moved = offset + shift
        assert edited.text[moved] == char
        line = edited.text.count("\n", 0, moved) + 1
        column = moved - (edited.text.rfind("\n", 0, moved) + 1) + 1
        assert edited.location(line, column) == source.location(offset)


# -- formats ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "message"), [
    ("", "empty input"), (b"  \n", "empty input"), (b"\xff\xfe\x00", "unknown format"),
    (b"ML\xefR\x06", "bytecode"), ("func.func @f() {\0 return }", "NUL"), (b"\x08\x07\x12", "ONNX"),
])  # fmt: skip
def test_unknown_formats_are_named(source: str | bytes, message: str):
    with pytest.raises(CompileError, match=message):
        load_source(source, "model")


def test_an_unknown_format_name_lists_the_known_ones():
    with pytest.raises(CompileError, match="format caffe: unknown; expected auto, mlir, stablehlo, onnx"):
        load_source("module {}", "model", "caffe")


def test_an_artifact_is_no_program():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("manifest.json", "{}")
    with pytest.raises(CompileError, match="an artifact, which is compiled already; expected a program"):
        load_source(archive.getvalue(), "model")


def test_a_message_is_not_as_long_as_the_file():
    with pytest.raises(CompileError) as caught:
        load_source("a" * 100_000, "model")
    assert caught.value.message.startswith("aaa")
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(("opening", "closing"), [("tuple<", ">"), ("scf.if %c {\n", "}\n"), ("(", ")")])
def test_brackets_inside_each_other_have_a_limit(opening: str, closing: str):
    depth = 50_000
    text = f"func.func @f(%c: i1) {{\n{opening * depth}{closing * depth}\nreturn }}"
    with pytest.raises(CompileError, match="2,001 brackets inside each other; expected at most 2,000"):
        load_source(text, FILE)


def test_brackets_in_strings_and_deep_bodies_are_read():
    depth = 500
    text = f"""func.func @f(%x: tensor<3xf32> {{own.text = "{'{' * 5000}"}}, %c: i1) -> tensor<3xf32> {{
      {"scf.if %c {" * depth} {"}" * depth} return %x : tensor<3xf32> }}"""
    assert "@f" in text_of(text)


def test_a_type_of_any_length_is_cut_in_messages():
    kind = "tuple<" * 1900 + "f32" + ">" * 1900
    with pytest.raises(CompileError, match=r"argument 0 is tuple<tuple.* characters more") as caught:
        motet.compile(f"func.func @f(%x: {kind}) {{\n  return\n}}")
    assert len(str(caught.value)) < 5000


def test_arguments_of_too_many_axes_are_refused():
    kind = f"tensor<{'1x' * 65}f32>"
    with pytest.raises(CompileError, match="@f: argument 0 has 65 axes; expected at most 64"):
        motet.compile(f"func.func @f(%x: {kind}) -> {kind} {{\n  return %x : {kind}\n}}")
