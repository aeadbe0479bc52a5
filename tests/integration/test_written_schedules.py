"""Programs whose operations have schedules: the schedule's class generates the code, results are right, and a schedule
that does not apply is an error at the operation's place."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.unit.compiler.building import build, kinds, random

import motet
from motet.artifact.kernel_schedules import schedules_of
from motet.compiler import service
from motet.compiler.request import CompileRequest
from motet.compiler.targets.cpu import X86_64_V3
from motet.compiler.targets.device_flags import parse_device_flags
from motet.errors import CompileError

pytest.importorskip("yaml")


def product(attributes: str, m: int = 48, n: int = 64, k: int = 80) -> str:
    """Two products, the first with attributes and followed by max(…, 0)."""
    a, b, c = f"tensor<{m}x{k}xf32>", f"tensor<{k}x{n}xf32>", f"tensor<{m}x{n}xf32>"
    return f"""func.func @main(%a: {a}, %b: {b}) -> ({c}, {c}) {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : {c}
  %c = linalg.fill ins(%z : f32) outs(%e : {c}) -> {c}
  %0 = linalg.matmul {attributes} ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
  %1 = linalg.max ins(%0, %c : {c}, {c}) outs(%e : {c}) -> {c}
  %2 = linalg.matmul ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
  return %1, %2 : {c}, {c}
}}"""


@pytest.mark.parametrize("attributes", [
    '{loop.dims = ["x", "y", "z"], '
    'loop.schedule = "{x: parallelize, y: , z: , x#4: unroll, y#32: vectorize, B: {pack: y}}"}',
    '{loop.dims = ["j", "i", "k"], loop.schedule = "{j: parallelize, i: , k: , j#3: unroll, i#16: vectorize}"}',
    '{loop.schedule = ["i", "j", {"k" = {unroll = 2 : i64}}, {"j#16" = {vectorize}}]}',
    '{loop.schedule = {"j" = {"parallelize"}, i, "k", "i#2" = {unroll = 2 : i64}, "j#16" = {"vectorize"}}}',
    '{loop.schedule = "{}"}',
], ids=["named", "swapped", "array", "mapping", "default"])
@pytest.mark.parametrize("extents", [(48, 64, 80), (7, 33, 5), (1, 97, 13)])
def test_a_schedule_in_the_program_replaces_the_heuristic(attributes: str, extents: tuple[int, int, int]) -> None:
    text = product(attributes, *extents)
    m, n, k = extents
    a, b = random(m, k, seed=1), random(k, n, seed=2)
    first, second = build(text, X86_64_V3)["main"](a, b)
    wanted = a.astype("f8") @ b.astype("f8")
    np.testing.assert_allclose(first, np.maximum(wanted, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second, wanted, rtol=1e-4, atol=1e-5)
    assert kinds(text, X86_64_V3)[0] == "nest" and kinds(text, X86_64_V3)[1] != "nest"


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 3])
def test_tiles_of_few_sums_along_k(columns: int, rows: int) -> None:
    a, b, c = "tensor<3x20xf32>", "tensor<9x20xf32>", "tensor<3x9xf32>"
    schedule = f"class: contraction, lanes: 8, rows: {rows}, vectors: {columns}, tile_rows: 1, b_mode: along_k"
    text = f"""func.func @main(%a: {a}, %b: {b}) -> {c} {{
  %z = arith.constant 0.0 : f32
  %half = arith.constant dense<0.5> : {c}
  %e = tensor.empty() : {c}
  %c = linalg.fill ins(%z : f32) outs(%e : {c}) -> {c}
  %0 = linalg.matmul_transpose_b {{loop.schedule = "{{{schedule}, panels: 1}}"}} ins(%a, %b : {a}, {b})
         outs(%c : {c}) -> {c}
  %1 = arith.mulf %0, %half : {c}
  return %1 : {c}
}}"""
    x, y = random(3, 20, seed=1), random(9, 20, seed=2)
    found = build(text, X86_64_V3)["main"](x, y)
    np.testing.assert_allclose(found, x.astype("f8") @ y.astype("f8").T / 2, rtol=1e-4, atol=1e-5)
    assert kinds(text, X86_64_V3) == ["contraction"]


@pytest.mark.parametrize(("attributes", "says"), [
    ('{loop.schedule = "{k: parallelize, i: , j: }"}', "parallelize of k: tasks would race"),
    ('{loop.schedule = "{i: , j: }"}', "loop of k: no loop runs over it"),
    ('{loop.schedule = "{x: }"}', "loop of x: the stage has no dimension or value x"),
    ('{loop.schedule = "{i: "}', "expected YAML or JSON"),
    ('{loop.schedule = {"i", "j"}}', "loop of k: no loop runs over it"),
    ('{loop.schedule = {"k" = {"parallelize"}, "i", "j"}}', "parallelize of k: tasks would race"),
    ("{loop.schedule = 3 : i32}", "expected text, or an array of loops"),
    ('{loop.schedule = [{"i", "j"}]}', "expected one loop in each entry"),
    ('{loop.schedule = "{i: , j: , k: , i#8: unroll, j#64: vectorize}"}', "for host:x86-64-v3: .* at most 16 sums"),
    ('{loop.dims = ["x"], loop.schedule = "{x: }"}', "1 names; expected 3 different ones"),
    ('{loop.dims = [1], loop.schedule = "{x: }"}', "expected an array of names"),
])
def test_a_schedule_that_does_not_apply_is_an_error_at_its_place(attributes: str, says: str) -> None:
    with pytest.raises(CompileError, match=says) as caught:
        build(product(attributes), X86_64_V3)
    assert str(caught.value).startswith("test.mlir:5:8: loop.") and "\n" not in str(caught.value)


@pytest.mark.parametrize(("schedule", "says"), [
    ("{i: parallelize, j: , k: }", "it describes loops, and code for cuda devices has no loop nests; expected the for"),
    ("{class: launches, launches: [{form: none such}]}", 'launches[0]={"form":"none such"}: expected one of '),
    ("{class: launches, launches: []}", "launches=0: expected 1 of them"),
    ("{class: launches, launches: [{shape: x}]}", "shape: class launches has no such field"),
    ("{class: contraction}", "loop of class: there is no such loop or primitive of a launch; expected one of i, j, k"),
])
def test_on_a_gpu_a_schedule_selects_forms_or_is_an_error(schedule: str, says: str) -> None:
    with pytest.raises(CompileError, match=re.escape(says)) as caught:
        motet.compile(product(f'{{loop.schedule = "{schedule}"}}', 256, 256, 256), devices="cuda")
    assert ":5:8: loop.schedule: " in str(caught.value)


def test_a_schedule_that_selects_no_form_on_a_gpu_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    text = product('{loop.schedule = {"i", "j", "k"}}', 256, 256, 256)
    _write_source(text)
    said = ":5:8: loop.schedule: nothing in it selects a form for cuda devices"
    assert sum(said in each for each in caplog.messages) == 1


def test_the_forms_that_an_error_lists_are_schedules(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CompileError, match="it describes loops") as caught:
        _write_source(product('{loop.schedule = "{i: parallelize}"}', 256, 256, 256))
    listed = str(caught.value).partition("its launches, one of ")[2].partition("; or ")[0].split("; ")
    assert len(listed) == 8
    escaped = listed[-1].replace('"', '\\"')
    text = product(f'{{loop.schedule = "{escaped}"}}', 256, 256, 256)
    _write_source(text)
    assert caplog.messages == []


def _write_source(text: str) -> None:
    """Generates the source of a program's kernels for a GPU."""
    service.emit(CompileRequest(text, "test.mlir", devices=parse_device_flags(["cuda{arch=sm_90a}"])), "llvm")


@pytest.mark.parametrize("operation", [
    'linalg.softmax {loop.schedule = "{}"} dimension(1) ins(%a : T) outs(%c : T) -> T',
    'linalg.transpose ins(%a : T) outs(%c : T) permutation = [1, 0] {loop.schedule = "{}"}',
])
def test_a_schedule_of_an_operation_that_is_replaced_is_refused(operation: str) -> None:
    text = f"func.func @main(%a: T, %c: T) -> T {{\n  %0 = {operation}\n  return %0 : T\n}}"
    text = text.replace("T", "tensor<8x8xf32>")
    with pytest.raises(CompileError, match=r"test.mlir:2:8: loop.schedule: the compiler replaces this operation"):
        build(text, X86_64_V3)


def test_loops_of_a_mapping_are_in_the_order_of_the_text() -> None:
    """MLIR sorts the entries of a mapping by their names."""
    mapping = """{
      loop.dims = ["I", "J", "K"],
      loop.schedule = {
        "K", "J",
          "I[0:32]" = {"J#16" = {"vectorize"}},
          "I[32:]" = {"I#4" = {unroll}, "J#32" = {vectorize = unit}}
      }
    }"""
    lines = "{K: , J: , 'I[0:32]': {'J#16': vectorize}, 'I[32:]': {'I#4': unroll, 'J#32': vectorize}}"
    text = f'{{loop.dims = ["I", "J", "K"], loop.schedule = "{lines}"}}'
    first, second = (schedules_of(motet.compile(product(each), devices="host{cpu=x86-64-v3}"))
                     for each in (mapping, text))
    assert first == second and "nest" in [each.schedule["class"] for each in first]


def test_chains_keep_scheduled_operations() -> None:
    text = """func.func @main(%a: T, %c: T) -> T {
  %0 = linalg.exp ins(%a : T) outs(%c : T) -> T
  %1 = linalg.abs {loop.schedule = "{i: parallelize, j: vectorize}"} ins(%0 : T) outs(%c : T) -> T
  %2 = linalg.exp ins(%1 : T) outs(%c : T) -> T
  return %2 : T
}""".replace("T", "tensor<9x21xf32>")
    a = random(9, 21)
    (result,) = [build(text, X86_64_V3)["main"](a, a)]
    np.testing.assert_allclose(result, np.exp(np.exp(a.astype("f8"))), rtol=1e-4)
    assert "nest" in kinds(text, X86_64_V3)


@pytest.mark.parametrize("schedule", [
    "{k: split_reduction, i: , j: , k#64: , i#4: unroll, j#16: vectorize}",
    "{k: split_reduction, i: , j: , k#100: , i#3: unroll, j#32: vectorize}",
    "{k: split_reduction, j: , k#1024: , i: , j#16: vectorize, B: {pack: k}}",
    "{i: parallelize, k: split_reduction, j: , k#512: , j#16: vectorize}",
], ids=["tasks of 64", "a shorter last task", "packed", "in tasks of rows"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_partial_results_of_a_split_reduction(schedule: str, threads: int) -> None:
    """Partial results are combined once with what the result held before."""
    a, b, c = (random(*shape, seed=seed) for seed, shape in enumerate(((64, 4096), (4096, 64), (64, 64))))
    kinds = [f"tensor<{'x'.join(map(str, one.shape))}xf32>" for one in (a, b, c)]
    text = f"""func.func @main(%a: {kinds[0]}, %b: {kinds[1]}, %c: {kinds[2]}) -> {kinds[2]} {{
  %0 = linalg.matmul {{loop.schedule = "{schedule}"}} ins(%a, %b : {kinds[0]}, {kinds[1]}) outs(%c : {kinds[2]})
         -> {kinds[2]}
  return %0 : {kinds[2]}
}}"""
    artifact = motet.compile(text, devices="host{cpu=x86-64-v3}")
    assert "split_reduction" in str(schedules_of(artifact)[0].schedule)
    with motet.load(artifact, threads=threads) as session:
        for _ in range(3):
            np.testing.assert_allclose(session(a, b, c), a.astype("f8") @ b + c, rtol=1e-4, atol=1e-3)
