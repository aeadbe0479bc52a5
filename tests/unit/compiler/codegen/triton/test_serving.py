"""Programs are compiled by several processes: what comes of it is what one would make, and a death is an error."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import motet
from motet.compiler.codegen.triton.compile import process
from motet.compiler.codegen.triton.compile.objects import begin_programs, compile_programs
from motet.compiler.codegen.triton.text.program import Form, TritonProgram
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.gpu import GpuTarget
from motet.errors import CompileError, WorkerCrash

pytest.importorskip("triton")

COPY = """
import triton
import triton.language as tl

@triton.jit
def {name}(v0, v1):
    o = tl.arange(0, {block})
    tl.store(v1 + o, tl.exp(tl.load(v0 + o)) + {added})
"""
DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"


def target() -> GpuTarget:
    found = resolve_target("cuda:sm_90a")
    assert isinstance(found, GpuTarget)
    return found


def program(name: str, *sources: str) -> TritonProgram:
    return TritonProgram(
        name, ("fp32", "fp32"), (), tuple(Form(source, 1, label=str(i)) for i, source in enumerate(sources))
    )


def copy(name: str, block: int = 128, added: int = 1) -> str:
    return COPY.format(name=name, block=block, added=added)


def test_one_process_and_several_make_the_same() -> None:
    programs = [
        program(f"copy{i}", copy(f"copy{i}", 100), *(copy(f"copy{i}", 64 << j, i) for j in range(3))) for i in range(5)
    ]
    for most in (1, 2, 9):
        alone, together = (compile_programs(programs, target(), jobs, most) for jobs in (1, 4))
        assert alone == together
        assert [[made.form for made in forms] for forms in alone] == [list(range(1, 1 + min(most, 3)))] * 5


def test_artifacts_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    text = """
func.func @main(%x: tensor<37x64xf32>, %w: tensor<64x48xf32>) -> (tensor<37x48xf32>, tensor<64x48xf32>) {
  %e = tensor.empty() : tensor<37x48xf32>
  %z = arith.constant 0.0 : f32
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<37x48xf32>) -> tensor<37x48xf32>
  %p = linalg.matmul ins(%x, %w : tensor<37x64xf32>, tensor<64x48xf32>) outs(%f : tensor<37x48xf32>)
    -> tensor<37x48xf32>
  %t = math.tanh %w : tensor<64x48xf32>
  return %p, %t : tensor<37x48xf32>, tensor<64x48xf32>
}
"""
    made = [
        motet.compile(text, devices="cuda{arch=sm_90a}", options={"jobs": jobs}, cache=False) for jobs in (1, 4, 4)
    ]
    assert len({bytes(artifact.data) for artifact in made}) == 1


def entries(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_what_is_kept_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path))
    first = [program("one", copy("one", 100), copy("one")), program("two", copy("two"))]
    fresh = compile_programs(first, target(), 2)
    assert not entries(tmp_path)
    assert begin_programs(first, target(), 2, 1, keeps=True).result() == fresh
    assert len(entries(tmp_path)) == 2
    other = program("three", copy("three"))
    again = begin_programs([first[1], other, first[0]], target(), 2, 1, keeps=True)
    assert sorted(again.found) == [0, 2] and again.pending is not None and len(again.pending.request.programs) == 1
    made = again.result()
    assert [made[0], made[2]] == [fresh[1], fresh[0]] and made[1][0].entry == "three"
    assert begin_programs(first, target(), 2, 1, keeps=True).pending is None


def test_what_changes_code_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path))
    kept = program("one", copy("one"))
    begin_programs([kept], target(), 1, 1, keeps=True).result()
    older = resolve_target("cuda:sm_80")
    assert isinstance(older, GpuTarget)
    changes = [([kept], older, 1), ([kept], target(), 2), ([program("one", copy("one", 64))], target(), 1)]
    assert all(not begin_programs(new, where, 1, most, keeps=True).found for new, where, most in changes)
    monkeypatch.setenv("PTXAS_OPTIONS", "-O1")
    assert not begin_programs([kept], target(), 1, 1, keeps=True).found


def test_what_is_no_kernel_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path))
    with pytest.raises(CompileError, match="kernel bad: no code for cuda sm_90a"):
        begin_programs([program("bad", copy("bad", 100))], target(), 1, 1, keeps=True).result()
    assert not entries(tmp_path)


def test_a_form_that_ends_its_process_gives_way_to_the_next() -> None:
    programs = [program("one", DIES, copy("one")), program("two", copy("two"))]
    for jobs in (1, 2):
        (one,), (two,) = compile_programs(programs, target(), jobs)
        assert (one.form, one.entry, two.form, two.entry) == (1, "one", 0, "two")


def test_a_program_that_ends_its_process_is_named() -> None:
    programs = [program("good", copy("good")), program("bad", DIES)]
    words = r"^kernel bad: no code for sm_90a: Triton's process died \(SIGKILL\)"
    with pytest.raises(WorkerCrash, match=words) as info:
        compile_programs(programs, target(), 2)
    command = shlex.split(info.value.reproducer)
    again = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=True, timeout=60)
    assert "died (SIGKILL)" in again.stdout
    ((made,),) = compile_programs(programs[:1], target(), 2)
    assert made.entry == "good"


def test_a_process_that_is_gone_is_one_error_and_replaced() -> None:
    begun = begin_programs([program("slow", *(copy("slow", 1024, i) for i in range(4)))], target(), 1, 4)
    process.stop("cuda")
    with pytest.raises(WorkerCrash, match="kernels: no code for sm_90a: Triton's process died"):
        begun.result()
    ((made,),) = compile_programs([program("next", copy("next"))], target(), 1)
    assert made.entry == "next"
