"""LLVM text from the MLIR wheel reads back through llvmlite: many constructs, and every bit of constants."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest

from motet.compiler.codegen.cpu.objects import ObjectUnit, compile_units, target_machine
from motet.compiler.codegen.llvm.text import to_llvmlite
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.translate import translate_to_llvm
from motet.compiler.targets.cpu import CPU_TARGETS
from motet.compiler.targets.native import native_target

LOWER = (
    "convert-linalg-to-loops,convert-vector-to-scf{full-unroll=true},lower-affine,arith-expand,convert-scf-to-cf,"
    "expand-strided-metadata,lower-affine,convert-vector-to-llvm,finalize-memref-to-llvm,convert-math-to-llvm,"
    "convert-complex-to-llvm,convert-func-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,convert-ub-to-llvm,"
    "convert-cf-to-llvm,reconcile-unrealized-casts"
)


def lower(source: str, before: str = "") -> str:
    with ir.Context():
        module = ir.Module.parse(source)
        run_pipeline(module, f"{before},{LOWER}" if before else LOWER)
        return translate_to_llvm(module)


def elementwise(dtype: str, body: str) -> str:
    return f"""
    func.func @k(%a: memref<64x{dtype}>, %b: memref<64x{dtype}>) {{
      linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                       iterator_types = ["parallel"]}}
        ins(%a : memref<64x{dtype}>) outs(%b : memref<64x{dtype}>) {{
      ^bb0(%x: {dtype}, %y: {dtype}):
        {body}
        linalg.yield %r : {dtype}
      }}
      return
    }}"""


def vector(body: str) -> str:
    return f"""
    func.func @k(%a: memref<64xf32>, %b: memref<64xf32>, %i: index, %j: index) {{
      %v = vector.load %a[%i] : memref<64xf32>, vector<16xf32>
      {body}
      vector.store %r, %b[%j] : memref<64xf32>, vector<16xf32>
      return
    }}"""


CORPUS = {
    "f16": elementwise("f16", "%c = arith.constant 1.1 : f16 %r = arith.mulf %x, %c : f16"),
    "bf16": elementwise("bf16", "%c = arith.constant 1.1 : bf16 %r = arith.mulf %x, %c : bf16"),
    "f32": elementwise("f32", "%c = arith.constant 1.1 : f32 %r = arith.mulf %x, %c : f32"),
    "f64": elementwise("f64", "%c = arith.constant 1.1 : f64 %r = arith.mulf %x, %c : f64"),
    "infinities": elementwise("f32", """
        %c = arith.constant 0xFF800000 : f32 %n = arith.constant 0x7FC00000 : f32
        %q = arith.maximumf %x, %c : f32 %r = arith.minimumf %q, %n : f32"""),
    "several types on one line": """
        func.func private @f(f16, f32, bf16, f64)
        func.func @k() {
          %a = arith.constant 0x7C00 : f16 %b = arith.constant -0.0 : f32
          %c = arith.constant 0xFF81 : bf16 %d = arith.constant 1.0e-310 : f64
          call @f(%a, %b, %c, %d) : (f16, f32, bf16, f64) -> ()
          return
        }""",
    "functions named as types": """
        func.func private @float(f64) -> f64
        func.func private @half(f64) -> f64
        func.func @double(%x: f64) -> f64 {
          %c = arith.constant 0.1 : f64 %0 = call @float(%c) : (f64) -> f64
          %1 = call @half(%0) : (f64) -> f64 %2 = arith.addf %1, %c : f64
          return %2 : f64
        }""",
    "conversions": elementwise("f32", """
        %p = arith.fptosi %x : f32 to i64 %q = arith.sitofp %p : i64 to f16 %s = arith.extf %q : f16 to f32
        %t = arith.truncf %s : f32 to bf16 %r = arith.extf %t : bf16 to f32"""),
    "integers": elementwise("i32", """
        %p = math.ctpop %x : i32 %q = math.ctlz %p : i32 %c = arith.constant 3 : i32
        %s = arith.shrsi %q, %c : i32
        %t = arith.remsi %s, %c : i32 %u = arith.maxui %t, %x : i32
        %w, %o = arith.addui_extended %u, %x : i32, i1
        %h, %l = arith.mulsi_extended %w, %x : i32 %r = arith.floordivsi %l, %c : i32"""),
    "narrow integers": elementwise("i8", """
        %t = arith.trunci %x : i8 to i4 %s = arith.extsi %t : i4 to i32 %f = arith.sitofp %s : i32 to f32
        %c = arith.constant 0.3 : f32 %m = arith.mulf %f, %c : f32 %r = arith.fptosi %m : f32 to i8"""),
    "index_width 1": elementwise("i1", "%t = arith.constant true %r = arith.xori %x, %t : i1"),
    "math": elementwise("f32", """
        %p = math.exp %x : f32 %q = math.log %p : f32 %s = math.sqrt %q : f32 %t = math.sin %s : f32
        %u = math.absf %t : f32 %w = math.floor %u : f32 %o = math.powf %w, %x : f32 %z = math.tanh %o : f32
        %f = math.fma %z, %z, %x : f32 %g = math.copysign %f, %x : f32 %r = math.roundeven %g : f32"""),
    "fast math": elementwise("f32", """
        %c = arith.constant 0.7 : f32 %p = arith.addf %x, %c fastmath<fast> : f32
        %q = arith.mulf %p, %c fastmath<ninf,nnan> : f32 %r = arith.negf %q fastmath<contract> : f32"""),
    "gather": vector("""
        %s = arith.constant dense<[0, 3, 1, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14]> : vector<16xi32>
        %m = arith.constant dense<true> : vector<16xi1>
        %r = vector.gather %a[%i][%s], %m, %v
          : memref<64xf32>, vector<16xi32>, vector<16xi1>, vector<16xf32> into vector<16xf32>"""),
    "masked": vector("""
        %m = vector.create_mask %i : vector<16xi1>
        vector.maskedstore %b[%i], %m, %v : memref<64xf32>, vector<16xi1>, vector<16xf32>
        %r = vector.maskedload %a[%j], %m, %v
          : memref<64xf32>, vector<16xi1>, vector<16xf32> into vector<16xf32>"""),
    "compressed": vector("""
        %m = vector.create_mask %i : vector<16xi1>
        vector.compressstore %b[%i], %m, %v : memref<64xf32>, vector<16xi1>, vector<16xf32>
        %r = vector.expandload %a[%i], %m, %v
          : memref<64xf32>, vector<16xi1>, vector<16xf32> into vector<16xf32>"""),
    "reduction": vector("""
        %s = vector.reduction <add>, %v : vector<16xf32> into f32
        %t = vector.reduction <maximumf>, %v : vector<16xf32> into f32
        %u = arith.addf %s, %t : f32 %r = vector.broadcast %u : f32 to vector<16xf32>"""),
    "shuffles": vector("""
        %p = vector.interleave %v, %v : vector<16xf32> -> vector<32xf32>
        %q, %w = vector.deinterleave %p : vector<32xf32> -> vector<16xf32>
        %c = arith.constant dense<0.1> : vector<16xf32> %x = arith.addf %w, %c : vector<16xf32>
        %r = arith.addf %q, %x : vector<16xf32>"""),
    "atomics": """
        func.func @k(%a: memref<64xf32>, %i: index, %v: f32, %b: memref<64xi32>, %w: i32) {
          %0 = memref.atomic_rmw addf %v, %a[%i] : (f32, memref<64xf32>) -> f32
          %1 = memref.atomic_rmw maximumf %v, %a[%i] : (f32, memref<64xf32>) -> f32
          %2 = memref.atomic_rmw addi %w, %b[%i] : (i32, memref<64xi32>) -> i32
          return
        }""",
    "globals": """
        memref.global "private" constant @g : memref<2x4xf32>
          = dense<[[1.1, 2.2, 0x7F800000, -0.0], [1.0e-40, 3.4e38, 0x7FC00001, 0.1]]> {alignment = 64 : i64}
        memref.global "private" @h : memref<4xf16> = dense<[1.1, 0.333, 65504.0, 6.0e-8]>
        memref.global "private" constant @s : memref<3xbf16> = dense<1.1>
        func.func @k(%i: index) -> (f32, f16, bf16) {
          %c0 = arith.constant 0 : index
          %g = memref.get_global @g : memref<2x4xf32> %x = memref.load %g[%c0, %i] : memref<2x4xf32>
          %h = memref.get_global @h : memref<4xf16> %y = memref.load %h[%i] : memref<4xf16>
          %s = memref.get_global @s : memref<3xbf16> %z = memref.load %s[%i] : memref<3xbf16>
          return %x, %y, %z : f32, f16, bf16
        }""",
    "control flow": """
        func.func @k(%n: index, %x: f32) -> f32 {
          %c1 = arith.constant 1 : index %z = arith.constant 0.1 : f32 %y = arith.constant 0x7F800000 : f32
          %r:2 = scf.while (%i = %n, %a = %z) : (index, f32) -> (index, f32) {
            %p = arith.cmpi sgt, %i, %c1 : index
            scf.condition(%p) %i, %a : index, f32
          } do {
          ^bb0(%i: index, %a: f32):
            %b = scf.index_switch %i -> f32 case 2 { scf.yield %y : f32 } default { scf.yield %x : f32 }
            %j = arith.subi %i, %c1 : index
            scf.yield %j, %b : index, f32
          }
          return %r#1 : f32
        }""",
    "allocation": """
        func.func @k(%n: index) -> f32 {
          %m = memref.alloc(%n) {alignment = 64 : i64} : memref<?x8xf32>
          %s = memref.alloca() : memref<16xf32> %c = arith.constant 0 : index
          %x = memref.load %m[%c, %c] : memref<?x8xf32>
          memref.store %x, %s[%c] : memref<16xf32>
          memref.dealloc %m : memref<?x8xf32>
          return %x : f32
        }""",
    "attributes": """
        func.func @k(%a: memref<64xf32> {llvm.noalias, llvm.align = 64 : i64}, %b: memref<64xf32>, %i: index)
            attributes {passthrough = ["nounwind", ["prefer-vector-width", "512"]]} {
          %c = memref.assume_alignment %b, 64 : memref<64xf32>
          %v = memref.load %a[%i] {nontemporal = true} : memref<64xf32>
          memref.store %v, %c[%i] : memref<64xf32>
          memref.prefetch %a[%i], read, locality<3>, data : memref<64xf32>
          return
        }""",
    "complex": """
        func.func @k(%a: memref<64xcomplex<f32>>, %i: index) {
          %x = memref.load %a[%i] : memref<64xcomplex<f32>> %y = complex.mul %x, %x : complex<f32>
          memref.store %y, %a[%i] : memref<64xcomplex<f32>>
          return
        }""",
    "copy": """
        func.func @k(%a: memref<32x32xf32>, %b: memref<16x16xf32>) {
          linalg.transpose ins(%b : memref<16x16xf32>) outs(%b : memref<16x16xf32>) permutation = [1, 0]
          memref.copy %b, %b : memref<16x16xf32> to memref<16x16xf32>
          return
        }""",
    "loop metadata": """
        #u = #llvm.loop_unroll<disable = true>
        #l = #llvm.loop_annotation<unroll = #u, mustProgress = true>
        llvm.func @k(%n: i64) {
          %z = llvm.mlir.constant(0 : i64) : i64 %o = llvm.mlir.constant(1 : i64) : i64
          llvm.br ^a(%z : i64)
        ^a(%i: i64):
          %j = llvm.add %i, %o overflow<nsw, nuw> : i64 %c = llvm.icmp "slt" %j, %n : i64
          llvm.cond_br %c, ^a(%j : i64), ^b {loop_annotation = #l}
        ^b:
          llvm.return
        }""",
}


@pytest.mark.parametrize("name", CORPUS)
def test_text_of_the_wheel_compiles_for_every_target(name: str) -> None:
    unit = ObjectUnit("k", to_llvmlite(lower(CORPUS[name])), optimise=True)
    for target in CPU_TARGETS.values():
        assert compile_units([unit], target, 1)[0][:4] == b"\x7fELF"


def test_matrix_multiplication_on_tensors_of_small_integers_compiles() -> None:
    source = """
    func.func @k(%a: tensor<8x16xi8>, %b: tensor<16x8xi8>, %c: tensor<8x8xi32>) -> tensor<8x8xi32> {
      %0 = linalg.matmul ins(%a, %b : tensor<8x16xi8>, tensor<16x8xi8>)
                         outs(%c : tensor<8x8xi32>) -> tensor<8x8xi32>
      return %0 : tensor<8x8xi32>
    }"""
    text = lower(source, "one-shot-bufferize{bufferize-function-boundaries=1}")
    assert compile_units([ObjectUnit("k", to_llvmlite(text), optimise=True)], native_target(), 1)


def global_bits(text: str, name: str, dtype: type[np.unsignedinteger], count: int) -> np.ndarray:
    """The memory of the global `name` after LLVM has read `text`."""
    machine = target_machine(native_target())
    module = llvm.parse_assembly(to_llvmlite(text))
    module.data_layout = str(machine.target_data)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    address = engine.get_global_value_address(name)
    memory = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(bytes(memory), dtype)


def bit_patterns(bits: int, exponent: int) -> np.ndarray:
    """Every pattern of 16 bits; of more, random ones, decimals, and NaNs with all kinds of payloads."""
    kind = np.dtype(f"u{bits // 8}")
    if bits == 16:
        return np.arange(1 << 16, dtype=kind)
    generator = np.random.default_rng(20)
    raw = generator.integers(0, 1 << bits, 4000, dtype=np.uint64)
    nans = raw[:600] | np.uint64(((1 << exponent) - 1) << (bits - 1 - exponent))
    floats = generator.choice([0.1, 1.0, 2.5, 1e-3, 3e7, 1e20], 2000) * generator.integers(-50, 50, 2000)
    exact = floats.astype(f"f{bits // 8}").view(kind)
    special = np.array([0, 1, 1 << (bits - 1), ((1 << exponent) - 1) << (bits - 1 - exponent)], np.uint64)
    return np.concatenate([raw.astype(kind), nans.astype(kind), exact, special.astype(kind)])


@pytest.mark.parametrize(
    ("dtype", "bits", "exponent"), [("f16", 16, 5), ("bf16", 16, 8), ("f32", 32, 8), ("f64", 64, 11)]
)
def test_constants_keep_every_bit(dtype: str, bits: int, exponent: int) -> None:
    patterns = bit_patterns(bits, exponent)
    count = len(patterns)
    with ir.Context(), ir.Location.unknown():
        kind = ir.Type.parse(f"tensor<{count}x{dtype}>")
        dense = ir.Attribute.parse(f'dense<"0x{patterns.tobytes().hex()}"> : {kind}')
        module = ir.Module.parse(f"llvm.mlir.global external @g({dense}) : !llvm.array<{count} x {dtype}>")
        text = translate_to_llvm(module)
    np.testing.assert_array_equal(global_bits(text, "g", patterns.dtype.type, count), patterns)


def test_scalar_constants_in_instructions_keep_their_bits() -> None:
    patterns = bit_patterns(32, 8)[::40]
    body = "\n".join(
        f"%v{i} = arith.constant 0x{pattern:08X} : f32\n%i{i} = arith.constant {i} : index\n"
        f"memref.store %v{i}, %a[%i{i}] : memref<{len(patterns)}xf32>"
        for i, pattern in enumerate(patterns)
    )
    text = lower(f"func.func @k(%a: memref<{len(patterns)}xf32>) {{ {body} return }}")
    machine = target_machine(native_target())
    module = llvm.parse_assembly(to_llvmlite(text))
    module.data_layout = str(machine.target_data)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    memory = np.zeros(len(patterns), np.uint32)
    pointer = memory.ctypes.data
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)(engine.get_function_address("k"))
    function(pointer, pointer, 0, len(patterns), 1)
    np.testing.assert_array_equal(memory, patterns)


def test_strings_and_comments_stay_as_they_are() -> None:
    text = '; float 1.5\nsource_filename = "float +inf 1.5"\n@s = constant [9 x i8] c"float 1.5"\n'
    assert to_llvmlite(text) == text


def test_attributes_that_only_newer_llvm_knows_are_dropped() -> None:
    text = 'define void @flatten() #0 {\n  ret void\n}\nattributes #0 = { flatten noipa nounwind "a"="b" }\n'
    module = llvm.parse_assembly(to_llvmlite(text))
    attributes = str(module).split("attributes #0")[1]
    assert "nounwind" in attributes
    assert '"a"="b"' in attributes
    assert [function.name for function in module.functions] == ["flatten"]
