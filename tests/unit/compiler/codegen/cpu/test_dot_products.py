"""Products of bytes on every level of x86-64, from text to result, against numpy's exact integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.prepared import load_mlir
from tests.unit.compiler.building import build, run

from motet.artifact.writer import write_artifact
from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.cpu import X86_64_V3, X86_64_V4, X86_64_V4_AMX, X86_64_V4_VNNI, CpuTarget
from motet.cpu_features import allow, host_features, machine
from motet.runtime import load
from motet.runtime.selection import choose

AVX_VNNI = replace(
    X86_64_V3, name="x86-64-v3-vnni", features="+avxvnni", requires=(*X86_64_V3.requires, "avxvnni")
)
LEVELS = (X86_64_V4_AMX, X86_64_V4_VNNI, X86_64_V4, AVX_VNNI, X86_64_V3)


def _runs(target: CpuTarget) -> bool:
    return set(target.requires) <= host_features() and allow(target.requires)


TARGETS = [
    pytest.param(target, id=target.name,
                 marks=pytest.mark.skipif(not _runs(target), reason=f"this processor is no {target.name}"))
    for target in LEVELS
]
every_target = pytest.mark.parametrize("target", TARGETS)

SHAPES = [(1, 1, 1), (1, 300, 129), (2, 17, 64), (7, 5, 3), (16, 16, 64), (17, 33, 65), (31, 64, 128), (37, 101, 53),
          (64, 128, 128), (127, 1, 61), (97, 131, 257), (300, 48, 700), (5, 16, 2000), (130, 200, 5000)]
SIGNS = ["ss", "uu", "us", "su"]
BYTES = {"s": np.int8, "u": np.uint8}
MAPS = {"n": ("m, k", "k, n"), "ta": ("k, m", "k, n"), "tb": ("m, k", "n, k"), "tt": ("k, m", "n, k")}


def random_bytes(sign: str, *shape: int, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(BYTES[sign])
    return np.random.default_rng(seed + sum(shape)).integers(limits.min, limits.max + 1, shape, BYTES[sign])


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of `a` and `b`, wrapped around as i32. In floats of 64 bits, which hold every such sum, as they
    multiply faster than integers."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64).astype(np.int32)


def product(m: object, n: object, k: object, signs: str = "ss", order: str = "n", batch: str = "") -> str:
    """A product of bytes as text, its dimensions in `order`; with `batch` (`ab`, `a` or `b`: which factors have it)
    of three pairs."""
    extents = {"m": m, "n": n, "k": k, "z": 3}
    a, b = (maps.split(", ") for maps in MAPS[order])
    a, b = (["z"] * ("a" in batch) + a), (["z"] * ("b" in batch) + b)
    c = ["z"] * bool(batch) + ["m", "n"]
    loops = ["z"] * bool(batch) + ["m", "n", "k"]

    def kind(dims: list[str], element: str) -> str:
        return "tensor<" + "x".join(str(extents[d]) for d in dims) + f"x{element}>"

    def sizes(dims: list[str]) -> str:
        names = {"m": "%m", "n": "%n"}
        return ", ".join(names[d] for d in dims if extents[d] == "?")

    def extent(name: str) -> str:
        source, dims = ("%a", a) if name == "m" else ("%b", b)
        where = kind(dims, "i8")
        return f"%{name} = tensor.dim {source}, %c{dims.index(name)} : {where}" if extents[name] == "?" else ""

    maps = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(dims)})>" for dims in (a, b, c))
    iterators = ", ".join('"reduction"' if d == "k" else '"parallel"' for d in loops)
    casts = ["arith.extsi" if sign == "s" else "arith.extui" for sign in signs]
    return f"""
func.func @main(%a: {kind(a, "i8")}, %b: {kind(b, "i8")}) -> {kind(c, "i32")} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  {extent("m")}
  {extent("n")}
  %z = arith.constant 0 : i32
  %e = tensor.empty({sizes(c)}) : {kind(c, "i32")}
  %f = linalg.fill ins(%z : i32) outs(%e : {kind(c, "i32")}) -> {kind(c, "i32")}
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}
    ins(%a, %b : {kind(a, "i8")}, {kind(b, "i8")}) outs(%f : {kind(c, "i32")}) {{
    ^bb0(%x: i8, %y: i8, %s: i32):
      %p = {casts[0]} %x : i8 to i32
      %q = {casts[1]} %y : i8 to i32
      %t = arith.muli %p, %q : i32
      %u = arith.addi %s, %t : i32
      linalg.yield %u : i32
  }} -> {kind(c, "i32")}
  return %r : {kind(c, "i32")}
}}"""


@every_target
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_products_of_odd_shapes_are_exact(m: int, n: int, k: int, target: CpuTarget) -> None:
    a, b = random_bytes("s", m, k), random_bytes("s", k, n, seed=1)
    (result,) = run(product(m, n, k), [a, b], target)
    assert (result == exact(a, b)).all()


@every_target
@pytest.mark.parametrize(
    ("order", "signs"), [*(("n", signs) for signs in SIGNS), ("ta", "us"), ("tb", "su"), ("tt", "uu"), ("tb", "ss")]
)
def test_every_sign_and_order_of_dimensions_is_exact(order: str, signs: str, target: CpuTarget) -> None:
    m, n, k = 37, 50, 131
    a, b = random_bytes(signs[0], m, k), random_bytes(signs[1], k, n, seed=1)
    inputs = [a.T.copy() if order in ("ta", "tt") else a, b.T.copy() if order in ("tb", "tt") else b]
    (result,) = run(product(m, n, k, signs, order), [array.view(np.int8) for array in inputs], target)
    assert (result == exact(a, b)).all()


@every_target
@pytest.mark.parametrize("signs", SIGNS)
def test_the_largest_bytes_neither_saturate_nor_overflow(signs: str, target: CpuTarget) -> None:
    m, n, k = 19, 35, 517
    extremes = {"s": (-128, 127), "u": (0, 255)}
    session = build(product(m, n, k, signs), target)
    for a_value in extremes[signs[0]]:
        for b_value in extremes[signs[1]]:
            a, b = np.full((m, k), a_value, BYTES[signs[0]]), np.full((k, n), b_value, BYTES[signs[1]])
            assert (session.main(a.view(np.int8), b.view(np.int8)) == a_value * b_value * k).all()


@every_target
def test_sums_beyond_32_bits_wrap_around(target: CpuTarget) -> None:
    k = 140_000
    a, b = np.full((3, k), -128, np.int8), np.full((k, 5), -128, np.int8)
    (result,) = run(product(3, 5, k), [a, b], target)
    assert (result == np.int64(128 * 128 * k).astype(np.int32)).all()


@every_target
@pytest.mark.parametrize("batch", ["ab", "a", "b"])
def test_batches_are_exact(batch: str, target: CpuTarget) -> None:
    a = random_bytes("s", *(3,) * ("a" in batch), 21, 70)
    b = random_bytes("s", *(3,) * ("b" in batch), 70, 33, seed=1)
    (result,) = run(product(21, 33, 70, batch=batch), [a, b], target)
    assert (result == exact(a, b)).all()


@every_target
def test_factors_may_lie_anywhere_in_memory(target: CpuTarget) -> None:
    m, n, k = 128, 272, 1024
    a, b = random_bytes("s", m, k), random_bytes("s", k, n, seed=1)
    session = build(product(m, n, k), target)
    room = np.empty(m * k + 128, np.int8)
    for offset in (0, 1, 16):
        start = -room.ctypes.data % 64 + offset
        moved = room[start : start + m * k].reshape(m, k)
        moved[:] = a
        assert (session.main(moved, b) == exact(a, b)).all()


@every_target
@pytest.mark.parametrize("k", ["77", "?"])
def test_one_compiled_program_takes_any_extents(k: str, target: CpuTarget) -> None:
    session = build(product("?", "?", k), target)
    for m, n, depth in [(1, 1, 1), (16, 32, 64), (5, 100, 70), (40, 31, 300), (33, 257, 129)]:
        depth = depth if k == "?" else int(k)
        a, b = random_bytes("s", m, depth), random_bytes("s", depth, n, seed=1)
        assert (session.main(a, b) == exact(a, b)).all()


ZEROS = """
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#za = affine_map<(m, n, k) -> {a_map}>
#zb = affine_map<(m, n, k) -> (n)>
#c = affine_map<(m, n, k) -> (m, n)>
#i = affine_map<(m, n) -> (m, n)>
#j = affine_map<(m, n) -> (n)>
func.func @main(%a: tensor<{m}x{k}xi8>, %az: tensor<{a_zeros}i8>, %b: tensor<{k}x{n}xi8>, %bz: tensor<{n}xi8>,
                %scale: tensor<{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %z = arith.constant 0 : i32
  %e = tensor.empty() : tensor<{m}x{n}xi32>
  %f = linalg.fill ins(%z : i32) outs(%e : tensor<{m}x{n}xi32>) -> tensor<{m}x{n}xi32>
  %r = linalg.generic {{indexing_maps = [#a, #za, #b, #zb, #c],
                        iterator_types = ["parallel", "parallel", "reduction"]}}
    ins(%a, %az, %b, %bz : tensor<{m}x{k}xi8>, tensor<{a_zeros}i8>, tensor<{k}x{n}xi8>, tensor<{n}xi8>)
    outs(%f : tensor<{m}x{n}xi32>) {{
    ^bb0(%x: i8, %xz: i8, %y: i8, %yz: i8, %s: i32):
      %x1 = arith.{a_cast} %x : i8 to i32
      %x2 = arith.{a_cast} %xz : i8 to i32
      %x3 = arith.subi %x1, %x2 : i32
      %y1 = arith.extsi %y : i8 to i32
      %y2 = arith.extsi %yz : i8 to i32
      %y3 = arith.subi %y1, %y2 : i32
      %p = arith.muli %x3, %y3 : i32
      %t = arith.addi %s, %p : i32
      linalg.yield %t : i32
  }} -> tensor<{m}x{n}xi32>
  %g = tensor.empty() : tensor<{m}x{n}xf32>
  %h = linalg.generic {{indexing_maps = [#i, #j, #i], iterator_types = ["parallel", "parallel"]}}
    ins(%r, %scale : tensor<{m}x{n}xi32>, tensor<{n}xf32>) outs(%g : tensor<{m}x{n}xf32>) {{
    ^bb0(%v: i32, %w: f32, %o: f32):
      %v1 = arith.sitofp %v : i32 to f32
      %v2 = arith.mulf %v1, %w : f32
      linalg.yield %v2 : f32
  }} -> tensor<{m}x{n}xf32>
  return %h : tensor<{m}x{n}xf32>
}}"""


@every_target
@pytest.mark.parametrize("a_sign", ["s", "u"])
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 40, 33), (29, 19, 130), (32, 64, 128)])
def test_zero_points_come_out_of_the_sum(
    m: int, n: int, k: int, per_row: bool, a_sign: str, target: CpuTarget
) -> None:
    a, b = random_bytes(a_sign, m, k), random_bytes("s", k, n, seed=1)
    a_zero, b_zero = random_bytes(a_sign, *(m,) * per_row, seed=2), random_bytes("s", n, seed=3)
    a_zero = np.asarray(a_zero)
    scale = np.random.default_rng(4).standard_normal(n).astype(np.float32)
    text = ZEROS.format(
        m=m, n=n, k=k, a_map="(m)" if per_row else "()", a_zeros=f"{m}x" if per_row else "",
        a_cast="extsi" if a_sign == "s" else "extui",
    )
    rows = a_zero.astype(np.int64).reshape(-1, 1)
    expected = ((a.astype(np.int64) - rows) @ (b.astype(np.int64) - b_zero)).astype(np.float32) * scale
    inputs = [a.view(np.int8), a_zero.view(np.int8), b, b_zero, scale]
    (result,) = run(text, inputs, target)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    (info,) = built(text, [target]).manifest.variants[0].kernels
    assert info.kind.startswith("integer product")


CONSTANT = """
func.func @main(%a: tensor<{m}x{k}xi8>) -> tensor<{m}x{n}xi32> {{
  %b = arith.constant dense<"0x{weights}"> : tensor<{k}x{n}xi8>
  %z = arith.constant 7 : i32
  %e = tensor.empty() : tensor<{m}x{n}xi32>
  %f = linalg.fill ins(%z : i32) outs(%e : tensor<{m}x{n}xi32>) -> tensor<{m}x{n}xi32>
  %r = linalg.matmul ins(%a, %b : tensor<{m}x{k}xi8>, tensor<{k}x{n}xi8>)
    outs(%f : tensor<{m}x{n}xi32>) -> tensor<{m}x{n}xi32>
  return %r : tensor<{m}x{n}xi32>
}}"""


@every_target
@pytest.mark.parametrize(("m", "n", "k"), [(1, 70, 33), (18, 33, 100), (64, 128, 64)])
def test_constant_factors_are_packed_when_compiling(m: int, n: int, k: int, target: CpuTarget) -> None:
    a, b = random_bytes("s", m, k), random_bytes("s", k, n, seed=1)
    (result,) = run(CONSTANT.format(m=m, n=n, k=k, weights=b.tobytes().hex().upper()), [a], target)
    assert (result == exact(a, b) + 7).all()


# -- levels ----------------------------------------------------------------------------------------------

BYTES_ALONE = """
func.func @bytes(%a: tensor<32x64xi8>, %b: tensor<64x32xi8>, %c: tensor<32x32xi32>) -> tensor<32x32xi32> {
  %r = linalg.matmul ins(%a, %b : tensor<32x64xi8>, tensor<64x32xi8>)
    outs(%c : tensor<32x32xi32>) -> tensor<32x32xi32>
  return %r : tensor<32x32xi32>
}
"""
FLOATS = """
func.func @floats(%a: tensor<32x64xf32>, %b: tensor<64x32xf32>, %c: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<32x64xf32>, tensor<64x32xf32>)
    outs(%c : tensor<32x32xf32>) -> tensor<32x32xf32>
  return %r : tensor<32x32xf32>
}
"""


def built(text: str, targets: list[CpuTarget]) -> pipeline.Built:
    program = load_mlir(text, "test.mlir")
    with program.module.context, ir.Location.unknown():
        return pipeline.build(program, targets, 1, lambda what, fraction: None)


def test_levels_for_products_of_bytes_are_left_out_of_programs_without_them() -> None:
    levels = [X86_64_V4_AMX, X86_64_V4_VNNI, X86_64_V4, X86_64_V3]
    assert [v.target for v in built(FLOATS, levels).manifest.variants] == ["x86-64-v4", "x86-64-v3"]
    assert [v.target for v in built(FLOATS, levels[:1]).manifest.variants] == ["x86-64-v4-amx"]
    assert [v.target for v in built(BYTES_ALONE, levels).manifest.variants] == [level.name for level in levels]


def test_levels_share_the_code_that_gains_nothing() -> None:
    made = built(BYTES_ALONE + FLOATS, [X86_64_V4_AMX, X86_64_V4])
    above, below = (set(variant.objects) for variant in made.manifest.variants)
    assert len(above) == len(below) == 2 and len(above & below) == 1
    assert sum(name.endswith(".o") for name in made.members) == 3


@pytest.mark.skipif(not _runs(X86_64_V4_AMX), reason="this processor has no AMX")
def test_where_the_operating_system_refuses_amx_the_next_level_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = built(BYTES_ALONE, [X86_64_V4_AMX, X86_64_V4_VNNI, X86_64_V4])
    variants = made.manifest.variants
    assert choose(variants, machine(), host_features(), "test").target == "x86-64-v4-amx"
    monkeypatch.setattr("motet.cpu_features.allow", lambda features: "amx-int8" not in features)
    assert choose(variants, machine(), host_features(), "test").target == "x86-64-v4-vnni"
    session = load(write_artifact(made.manifest, made.members, made.parameters))
    a, b = random_bytes("s", 32, 64), random_bytes("s", 64, 32, seed=1)
    assert (session["bytes"](a, b, np.zeros((32, 32), np.int32)) == exact(a, b)).all()


@pytest.mark.skipif(not _runs(X86_64_V4_AMX), reason="this processor has no AMX")
def test_threads_share_the_work_of_a_product_by_amx() -> None:
    made = built(product(700, 500, 300), [X86_64_V4_AMX])
    session = load(write_artifact(made.manifest, made.members, made.parameters), threads=3)
    a, b = random_bytes("s", 700, 300), random_bytes("s", 300, 500, seed=1)
    expected = exact(a, b)
    assert all((session.main(a, b) == expected).all() for _ in range(20))
