"""Programs around a ring are compiled here, and run where there is a GPU: Triton's interpreter knows no Gluon."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import Generated, generate, random
from tests.unit.compiler.codegen.triton.texts import product

import motet
from motet.artifact.dtypes import DTYPES
from motet.compiler.codegen.gpu.gemm import plan
from motet.compiler.codegen.gpu.gemm.persistent_tiles import Ring, every_ring, ring_cycles
from motet.compiler.codegen.gpu.gemm.tiles import GemmShape
from motet.compiler.codegen.triton.compile.objects import compile_programs
from motet.compiler.codegen.triton.text.program import TritonProgram
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.gpu import GpuTarget
from motet.runtime.device import probe

SM_90A = resolve_target("cuda:sm_90a")
TF32 = resolve_target("cuda:sm_90a/tf32")
GPU = probe("cuda")[0]
BF16 = (
    Ring(128, (128, 64), 64, 4, 64), Ring(128, (256,), 64, 3, 64, 2), Ring(128, (64, 32), 64, 7, 32),
    Ring(128, (64,), 64, 7, 64), Ring(256, (128,), 64, 4, 32), Ring(64, (128, 64), 64, 5, 64, 3),
)
TOGETHER = (
    Ring(128, (64,) * 3, 64, 4, 32, 3, True), Ring(128, (32,) * 3, 64, 6, 32, 3, True),
    Ring(64, (64,) * 3, 64, 6, 32, 2, True),
)
FULL = Ring(128, (128,), 32, 5, 64, 2)
WIDE = (Ring(128, (256,), 32, 4, 32, 2), Ring(128, (128, 64), 32, 4, 32, 2), Ring(256, (128,), 32, 4, 32))
SLOW = pytest.mark.slow
SHAPES = ((513, 776, 200), (4096, 768, 136), (100, 264, 904))


def last(made: Generated) -> TritonProgram:
    """The program of the last launch, which multiplies."""
    return made.programs[made.schedule.commands[-1].kernel]


@pytest.fixture(autouse=True)
def only(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings as the test's parameter `ring` says alone, and these first."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and "ring" in callspec.params:
        monkeypatch.setattr(plan, "rings", lambda *_: [callspec.params["ring"]])
        monkeypatch.setattr(plan, "ring_cycles", lambda *_: 0)


def compiled(program: TritonProgram, target: GpuTarget) -> str:
    """The text of its first form, which must be a ring."""
    form = program.forms[0]
    assert form.label.startswith("ring")
    (made,) = compile_programs([replace(program, forms=(form,))], target, 1)[0]
    assert not made.error and not made.spills
    assert made.warps > form.warps  # those that fetch are more
    assert isinstance(form.tasks, int) and 0 < form.tasks <= target.processors
    return made.assembly


@pytest.mark.parametrize("ring", [BF16[0], *(pytest.param(ring, marks=SLOW) for ring in BF16[1:])], ids=str)
def test_rings_compile(ring: Ring) -> None:
    assert isinstance(SM_90A, GpuTarget)
    compiled(last(generate(product(513, 776, 200, "bf16", "f32", right="j, k"))), SM_90A)


@pytest.mark.parametrize("ring", [TOGETHER[0], *(pytest.param(ring, marks=SLOW) for ring in TOGETHER[1:])], ids=str)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_one_instruction_multiplies_parts_that_are_alike(ring: Ring, dtype: str) -> None:
    assert isinstance(SM_90A, GpuTarget)
    assembly = compiled(last(generate(product(513, 776, 200, dtype, "f32", right="j, k"))), SM_90A)
    instructions = re.findall(r"wgmma\.mma_async\S*", assembly)
    assert len(instructions) == 4
    assert set(instructions) == {f"wgmma.mma_async.sync.aligned.m64n{ring.n}k16.f32.{dtype}.{dtype}"}


@pytest.mark.parametrize(("left", "right", "together"), [
    ("i, k", "j, k", True), ("i, k", "k, j", True), ("k, i", "j, k", False),
])
def test_parts_have_an_instruction_together_where_the_left_factor_lies_along_the_sum(
    left: str, right: str, together: bool
) -> None:
    source = last(generate(product(4096, 2304, 768, "bf16", "f32", left, right))).forms[0].source
    assert ("def turn(" in source) == together


@pytest.mark.parametrize("ring", [FULL], ids=str)
@pytest.mark.parametrize(("left", "right"), [("i, k", "k, j"), ("i, k", "j, k"), ("k, i", "k, j"), ("k, i", "j, k")])
def test_threads_multiply_factors_in_full_precision(ring: Ring, left: str, right: str) -> None:
    assert isinstance(SM_90A, GpuTarget)
    made = generate(product(200, 776, 504, "f32", "f32", left, right))
    assert len(made.schedule.commands) == 1
    assembly = compiled(last(made), SM_90A)
    assert "wgmma" not in assembly and "fma.rn" in assembly and "ld.shared.v4" in assembly


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("ring", BF16[:1], ids=str)
def test_constants_are_fetched_without_waiting_for_others(ring: Ring, weight: bool) -> None:
    text = product(513, 264, 72, "bf16", "f32", right="j, k")
    if weight:
        data = random(264, 72).astype(DTYPES["bf16"]).tobytes().hex()
        text = text.replace("%b: tensor<264x72xbf16>, ", "")
        text = text.replace("  %e = ", f'  %b = arith.constant dense<"0x{data}"> : tensor<264x72xbf16>\n  %e = ', 1)
    source = last(generate(text)).forms[0].source
    begins = [source.index(f"def {name}(") for name in ("fetch_left", "fetch_right", "multiply")]
    waits = ["griddepcontrol.wait" in source[begin : source.index("for number", begin)] for begin in begins]
    assert waits == [True, not weight, True]


@pytest.mark.parametrize("ring", [WIDE[0], *(pytest.param(ring, marks=SLOW) for ring in WIDE[1:])], ids=str)
@pytest.mark.parametrize(("left", "right"), [("i, k", "k, j"), ("k, i", "j, k")])
def test_one_32_bit_factor_goes_through_registers(ring: Ring, left: str, right: str) -> None:
    assert isinstance(TF32, GpuTarget)
    made = generate(product(512, 776, 200, "f32", "f32", left, right), TF32)
    assert len(made.schedule.commands) == 1
    source = last(made).forms[0].source
    assert ".load(factors)" in source
    assert ("out.permute((1, 0)).store" in source) == (right == "k, j")
    compiled(last(made), TF32)


def test_of_two_32_bit_factors_one_is_copied() -> None:
    assert isinstance(TF32, GpuTarget)
    made = generate(product(512, 1032, 200, "f32", "f32", "k, i", "k, j"), TF32)
    assert len(made.schedule.commands) == 2 and ".load(factors)" in last(made).forms[0].source


@pytest.mark.parametrize(("factor", "size", "result", "together"), [
    ("bf16", 2, 2, 0), ("tf32", 4, 4, 0), ("i8", 1, 4, 0), ("bf16", 2, 0, 0), ("bf16", 2, 2, 1), ("bf16", 2, 2, 64),
])
def test_rings_have_room_and_places_for_all_pieces(factor: str, size: int, result: int, together: int) -> None:
    assert isinstance(SM_90A, GpuTarget)
    found = every_ring((size, result), (64, 32), SM_90A, together)
    assert found and len({ring.label for ring in found}) == len(found)
    for ring in found:
        outs = ring.outs * ring.m * ring.piece * result
        assert ring.stages * (ring.m + ring.n) * ring.k * size + outs <= SM_90A.shared
        assert ring.n % ring.piece == 0 and ring.n // ring.piece % ring.outs == 0 and ring.k * size == 128
        assert ring_cycles(ring, GemmShape(4096, 4096, 4096, 1, factor, True), SM_90A) > 0


@pytest.mark.parametrize(("shape", "tile"), [  # the fastest ones on an H200
    ((4096, 2304, 768), "128x192"), ((4096, 3072, 768), "128x256"), ((4096, 768, 3072), "128x192"),
    ((12608, 768, 3072), "128x192"), ((256, 6144, 4096), "128x96"), ((256, 4096, 4096), "128x64"),
    ((256, 14336, 4096), "128x256"), ((256, 4096, 14336), "128x64"), ((4096, 4096, 4096), "128x256"),
    ((1536, 768, 768), "64x192"), ((2048, 1024, 1024), "64x256"), ((2048, 768, 3072), "64x192"),  # these on an H100
])
def test_tiles_leave_few_processors_without_work(shape: tuple[int, int, int], tile: str) -> None:
    program = last(generate(product(*shape, "bf16", "f32", right="j, k")))
    assert program.forms[0].label.startswith(f"ring {tile}x64")


@pytest.mark.parametrize("shape", [(4096, 768, 3072), (12605, 760, 2048)])
def test_blocks_of_long_sums_of_many_rows_go_in_pairs(shape: tuple[int, int, int]) -> None:
    assert isinstance(SM_90A, GpuTarget)
    program = last(generate(product(*shape, "bf16", "f32", right="j, k")))
    form = program.forms[0]
    assert form.label.endswith("in pairs") and form.blocks == 2
    assert isinstance(form.tasks, int) and form.tasks % 2 == 0
    assert "pn = pn * 2 + number % 2" in form.source
    assert compiled(program, SM_90A).count(".reqnctapercluster 2\n") == 1


@pytest.mark.parametrize("shape", [
    (1024, 1024, 1024), (4096, 4096, 4096), (12608, 2304, 768), (1024, 704, 4096), (512, 4096, 4096),
])
def test_short_sums_large_tiles_few_tiles_and_few_rows_go_one_by_one(shape: tuple[int, int, int]) -> None:
    forms = last(generate(product(*shape, "bf16", "f32", right="j, k"))).forms
    assert all(form.blocks == 1 for form in forms)


# -- where there is a GPU --------------------------------------------------------------------------


def multiplied(shape: tuple[int, int, int], dtype: str, options: str, folder: Path) -> None:
    m, n, k = shape
    text = folder / "product.mlir"
    text.write_text(product(m, n, k, dtype, "f32", right="k, j" if options else "j, k"))
    artifact = motet.compile(text, devices=f"cuda{{arch=sm_90a{options}}}", cache=False)
    x = random(m, k).astype(DTYPES[dtype])
    y = random(*((k, n) if options else (n, k)), seed=1).astype(DTYPES[dtype])
    bias = random(n)
    with motet.load(artifact) as session:
        got = np.asarray(session(x, y, bias))
    wanted = np.maximum(x.astype("f8") @ (y if options else y.T).astype("f8") + bias, 0)
    np.testing.assert_allclose(got, wanted, rtol=5e-3, atol=5e-3 * k**0.5)


@pytest.mark.cuda
@pytest.mark.skipif(not GPU.available, reason=GPU.reason)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("ring", [*BF16, *TOGETHER], ids=str)
def test_every_ring_agrees_with_numpy(ring: Ring, shape: tuple[int, int, int], tmp_path: Path) -> None:
    multiplied(shape, "bf16", "", tmp_path)


@pytest.mark.cuda
@pytest.mark.skipif(not GPU.available, reason=GPU.reason)
@pytest.mark.parametrize("shape", [(200, 776, 504), (1000, 1032, 36)], ids=str)
@pytest.mark.parametrize("ring", [FULL], ids=str)
def test_full_precision_agrees_with_numpy(ring: Ring, shape: tuple[int, int, int], tmp_path: Path) -> None:
    multiplied(shape, "f32", "", tmp_path)


@pytest.mark.cuda
@pytest.mark.skipif(not GPU.available, reason=GPU.reason)
@pytest.mark.parametrize("shape", [(512, 776, 200), (1000, 1032, 36)], ids=str)
@pytest.mark.parametrize("ring", WIDE, ids=str)
def test_factors_through_registers_agree_with_numpy(ring: Ring, shape: tuple[int, int, int], tmp_path: Path) -> None:
    multiplied(shape, "f32", ",precision=tf32", tmp_path)


@pytest.mark.parametrize("ring", BF16[:1], ids=str)
def test_what_is_added_is_loaded_when_a_tile_begins(ring: Ring) -> None:
    assert isinstance(SM_90A, GpuTarget)
    kind = "tensor<512x384xbf16>"
    made = generate(f"""
func.func @main(%a: tensor<512x256xbf16>, %b: tensor<256x384xbf16>, %r: {kind}, %q: {kind}) -> {kind} {{
  %z = arith.constant 0.0 : bf16
  %e = tensor.empty() : {kind}
  %f = linalg.fill ins(%z : bf16) outs(%e : {kind}) -> {kind}
  %p = linalg.matmul ins(%a, %b : tensor<512x256xbf16>, tensor<256x384xbf16>) outs(%f : {kind}) -> {kind}
  %s = linalg.add ins(%p, %r : {kind}, {kind}) outs(%e : {kind}) -> {kind}
  %u = linalg.mul ins(%s, %q : {kind}, {kind}) outs(%e : {kind}) -> {kind}
  return %u : {kind}
}}""")
    source = last(made).forms[0].source
    before, ending = source[source.index("def ahead(") :].split("def finish(")
    assert before.count("tl.load") == 1 and ending.count("tl.load") == 1  # of two there is room for one
    compiled(last(made), SM_90A)
