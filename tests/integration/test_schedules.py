"""Schedules of kernels from the command line: what inspect shows, compile takes, and the guide's example."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.conftest import run_motet

import motet
from motet.lab.evaluation import record_of, replace_record
from motet.lab.subject import expect_legal, open_program, subject_of
from motet.records.database import Database

pytestmark = pytest.mark.usefixtures("all_levels")

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "schedules.md").read_text()
PRODUCT = GUIDE.split("<<'EOF_MLIR'\n")[1].split("EOF_MLIR")[0]
LOOPS = {"class": "loops", "phases": [{"stages": 1, "lanes": 8, "grain": 1}]}  # of a kernel of one stage
MIXED = """
func.func @main(%a: tensor<9x70xf32>, %b: tensor<70x33xf32>, %x: tensor<1x16x9x9xf32>, %w: tensor<8x16x3x3xf32>)
    -> (tensor<9x33xf32>, tensor<1x8x7x7xf32>, tensor<9x70xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<9x33xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<9x33xf32>) -> tensor<9x33xf32>
  %p = linalg.matmul ins(%a, %b : tensor<9x70xf32>, tensor<70x33xf32>) outs(%f : tensor<9x33xf32>) -> tensor<9x33xf32>
  %g = tensor.empty() : tensor<1x8x7x7xf32>
  %h = linalg.fill ins(%zero : f32) outs(%g : tensor<1x8x7x7xf32>) -> tensor<1x8x7x7xf32>
  %c = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<1x16x9x9xf32>, tensor<8x16x3x3xf32>)
                                outs(%h : tensor<1x8x7x7xf32>) -> tensor<1x8x7x7xf32>
  %i = tensor.empty() : tensor<9x70xf32>
  %s = linalg.softmax dimension(1) ins(%a : tensor<9x70xf32>) outs(%i : tensor<9x70xf32>) -> tensor<9x70xf32>
  return %p, %c, %s : tensor<9x33xf32>, tensor<1x8x7x7xf32>, tensor<9x70xf32>
}
"""


def command(folder: Path, *arguments: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
    done = run_motet(*arguments, folder=folder)
    assert (done.returncode == 0) == ok, done.stderr
    return done


def compiled(folder: Path, name: str, content: Any, ok: bool = True) -> subprocess.CompletedProcess[str]:
    """`motet compile` of the program in `folder` by the schedules `content`."""
    (folder / "schedules.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return command(
        folder, "compile", "program.mlir", "-o", name, "--device", "host{cpu=x86-64-v3}", "--option",
        "schedules=schedules.json", ok=ok,
    )


def file_of(kernel: str, schedule: Any, target: str = "host:x86-64-v3") -> dict[str, Any]:
    return {"motet_schedules": 1, "kernels": [{"kernel": kernel, "target": target, "schedule": schedule}]}


@pytest.mark.parametrize("device", ["host{cpu=x86-64-v4+x86-64-v3}", "cuda{arch=sm_90a}", "riscv"])
@pytest.mark.parametrize("program", [PRODUCT, MIXED], ids=["product", "mixed"])
def test_an_artifacts_own_schedules_make_the_same_artifact(tmp_path: Path, device: str, program: str) -> None:
    (tmp_path / "program.mlir").write_text(program)
    flags = ["compile", "program.mlir", "--no-cache", "--device", device]
    command(tmp_path, *flags, "-o", "first.motet")
    listed = command(tmp_path, "inspect", "first.motet", "--schedules", "--json").stdout
    (tmp_path / "own.json").write_text(listed)
    done = command(tmp_path, *flags, "-o", "second.motet", "--option", "schedules=own.json")
    assert not done.stderr and json.loads(listed)["kernels"]
    assert (tmp_path / "first.motet").read_bytes() == (tmp_path / "second.motet").read_bytes()


@pytest.mark.slow
def test_the_guides_example_runs_as_printed(tmp_path: Path) -> None:
    motet_command = tmp_path / "bin" / "motet"
    motet_command.parent.mkdir()
    motet_command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m motet "$@"\n')
    motet_command.chmod(0o755)
    (tmp_path / "work").mkdir()
    blocks = [text for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.M | re.S) if not language]
    script = f'PATH="{motet_command.parent}:$PATH"\nset -e\n' + "".join(blocks)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path / "work", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown, error = re.findall(r"^```text\n(.*?)^```", GUIDE, re.M | re.S)
    assert shown in done.stdout and done.stdout.count("time per call") == 2
    wrong = (tmp_path / "work" / "forced.json").read_text().replace('"rows": 4', '"rows": 40')
    (tmp_path / "program.mlir").write_text(PRODUCT)
    stderr = compiled(tmp_path, "wrong.motet", wrong, ok=False).stderr
    assert stderr.startswith(error.split(": expected")[0]) and "expected 1 to 8 (16 vector registers)" in stderr


def test_a_schedule_by_name_changes_the_code_and_not_the_result(tmp_path: Path) -> None:
    (tmp_path / "program.mlir").write_text(PRODUCT)
    forced = LOOPS
    compiled(tmp_path, "loops.motet", file_of("main_kernel_0", forced))
    (kernel,) = json.loads(command(tmp_path, "inspect", "loops.motet", "--schedules", "--json").stdout)["kernels"]
    assert kernel["schedule"] == forced
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((512, 384), np.float32), rng.standard_normal((384, 640), np.float32)
    with motet.load(tmp_path / "loops.motet") as session:
        got = session(a, b)
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("level", ["x86-64-v4", "x86-64-v4-bf16"])
def test_records_of_a_level_are_for_those_that_extend_it(tmp_path: Path, level: str) -> None:
    (tmp_path / "program.mlir").write_text(PRODUCT)
    content = file_of("main_kernel_0", LOOPS, "host:x86-64-v4")
    content["kernels"][0]["origin"] = "a record"
    (tmp_path / "record.json").write_text(json.dumps(content))
    command(tmp_path, "compile", "program.mlir", "-o", "p.motet", "--device", f"host{{cpu={level}}}",
            "--option", "schedules=record.json")  # fmt: skip
    (kernel,) = json.loads(command(tmp_path, "inspect", "p.motet", "--schedules", "--json").stdout)["kernels"]
    assert (kernel["schedule"], kernel["origin"]) == (LOOPS, "a record")


def test_equal_kernels_may_have_schedules_of_their_own(tmp_path: Path) -> None:
    """Code is shared by kernels of equal structure only where they have equal schedules."""
    once = PRODUCT.replace("@main", "@one")
    (tmp_path / "program.mlir").write_text(once + PRODUCT.replace("@main", "@other"))
    compiled(tmp_path, "two.motet", file_of("other_kernel_0", LOOPS))
    kernels = json.loads(command(tmp_path, "inspect", "two.motet", "--schedules", "--json").stdout)["kernels"]
    found = {name: each["schedule"]["class"] for each in kernels for name in each["names"]}
    assert found == {"one_kernel_0": "contraction", "other_kernel_0": "loops"}
    compiled(tmp_path, "again.motet", {"motet_schedules": 1, "kernels": kernels})
    assert (tmp_path / "again.motet").read_bytes() == (tmp_path / "two.motet").read_bytes()


def network(rows: int, constant: bool) -> str:
    """max(a @ b + c, 0), of 64 columns; b is all ones if it is constant."""
    weights = "%b = arith.constant dense<1.0> : tensor<40x64xf32>" if constant else ""
    return f"""
func.func @main(%c: tensor<64xf32>, %a: tensor<{rows}x40xf32>{"" if constant else ", %b: tensor<40x64xf32>"})
    -> tensor<{rows}x64xf32> {{
  %z = arith.constant 0.0 : f32
  {weights}
  %e = tensor.empty() : tensor<{rows}x64xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<{rows}x64xf32>) -> tensor<{rows}x64xf32>
  %p = linalg.matmul ins(%a, %b : tensor<{rows}x40xf32>, tensor<40x64xf32>)
      outs(%f : tensor<{rows}x64xf32>) -> tensor<{rows}x64xf32>
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
      ins(%p, %c : tensor<{rows}x64xf32>, tensor<64xf32>) outs(%e : tensor<{rows}x64xf32>) {{
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.addf %x, %y : f32
    %m = arith.maximumf %s, %z : f32
    linalg.yield %m : f32
  }} -> tensor<{rows}x64xf32>
  return %r : tensor<{rows}x64xf32>
}}"""


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("rows", "extents", "taken"), [
    (48, "48x64x40", True), (37, "48x64x40", True), (48, "40x48x40", True), (48, "480x640x40", False),
])
@pytest.mark.parametrize("text", [
    '{class: contraction, lanes: 8, rows: 2, vectors: 1, tile_rows: 3, panels: 1, b_mode: scratch}',
    '{i: parallelize, j: , k: , i#2: unroll, j#16: vectorize, B: {pack: j}}',
])
def test_an_operator_in_a_kernel_gets_the_record_of_the_nearest(
    tmp_path: Path, text: str, rows: int, extents: str, taken: bool, constant: bool
) -> None:
    subject = subject_of(open_program(f"matmul:{extents}xf32", "host{cpu=x86-64-v3}"))
    made = subject.parse(text)
    expect_legal(subject, made)
    record = replace_record(record_of(subject, made, "here"), seconds=1e-6, validated=True, origin="random")
    with Database(tmp_path / "lab.db", create=True) as database:
        database.add([record])
    (tmp_path / "program.mlir").write_text(network(rows, constant))
    said = command(tmp_path, "compile", "program.mlir", "-o", "p.motet", "--device", "host{cpu=x86-64-v3}",
                   "--option", "schedules=lab.db").stdout  # fmt: skip
    assert f"records for {int(taken)} of 1 kernels" in said and (", 1 of them by the nearest" in said) == taken
    (kernel,) = json.loads(command(tmp_path, "inspect", "p.motet", "--schedules", "--json").stdout)["kernels"]
    assert kernel.get("origin", "").endswith(f", found for extents {extents}") == taken
    found = kernel["schedule"]
    assert (found.get("tile_rows") == 3 or found["class"] == "nest") == taken
    assert not taken or found["class"] == "nest" or found["b_mode"] == ("packed" if constant else "scratch")
    rng = np.random.default_rng(0)
    a, c = rng.standard_normal((rows, 40), np.float32), rng.standard_normal(64, np.float32)
    b = np.ones((40, 64), np.float32) if constant else rng.standard_normal((40, 64), np.float32)
    with motet.load(tmp_path / "p.motet") as session:
        got = session(*((c, a) if constant else (c, a, b)))
    np.testing.assert_allclose(got, np.maximum(a.astype(np.float64) @ b + c, 0), rtol=1e-4, atol=1e-4)


def test_unknown_kernels_are_one_warning(tmp_path: Path) -> None:
    (tmp_path / "program.mlir").write_text(PRODUCT)
    content = file_of("main_kernel_7", LOOPS)
    content["kernels"] += file_of("0" * 32, LOOPS)["kernels"]
    content["kernels"] += file_of("elsewhere", LOOPS, "host:x86-64-v4")["kernels"]  # is not compiled for
    stderr = compiled(tmp_path, "product.motet", content).stderr
    assert stderr.count("\n") == 1 and f"no kernel main_kernel_7, {'0' * 32};" in stderr and "elsewhere" not in stderr


@pytest.mark.parametrize(("content", "message"), [
    ("", "schedules.json: no schedules:"),
    ("[]", "no schedules: Expected `object`"),
    ({"motet_schedules": 2, "kernels": []}, "schedules of version 2; expected 1"),
    (file_of("k", LOOPS, "host:sse2"), "kernel k for host:sse2: no such target; expected one of"),
    (file_of("k", LOOPS, "tpu:1"), "kernel k for tpu:1: no such target; expected one of"),
    (file_of("k", {"class": "tensors"}), "kernel k for host:x86-64-v3: class=tensors: expected one of contraction"),
    (file_of("k", {"class": "loops", "rows": 1}), "rows: class loops has no such field"),
    (file_of("main_kernel_0", {"class": "direct", "lanes": 8, "tile_rows": 1, "vectors": 1, "block": 1}),
     'class="direct": expected one of contraction, loops, nest, which take this kernel'),
    (file_of("main_kernel_0", {"class": "launches", "launches": []}),
     'class="launches": expected one of contraction, loops'),
])
def test_what_is_wrong_is_one_line(tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "program.mlir").write_text(PRODUCT)
    stderr = compiled(tmp_path, "wrong.motet", content, ok=False).stderr
    assert stderr.startswith("error: option schedules") and message in stderr and stderr.count("\n") == 1


def test_a_form_of_a_launch_is_forced_and_an_unknown_one_lists_all(tmp_path: Path) -> None:
    (tmp_path / "program.mlir").write_text(PRODUCT)
    flags = ["compile", "program.mlir", "--device", "cuda{arch=sm_90a}", "--option", "schedules=own.json"]
    wrong = file_of("main_kernel_0", {"class": "launches", "launches": [{"form": "?"}]}, "cuda:sm_90a")
    (tmp_path / "own.json").write_text(json.dumps(wrong))
    stderr = command(tmp_path, *flags, "-o", "wrong.motet", ok=False).stderr
    assert stderr.count("\n") == 1
    *_, other = stderr.split("one of the forms ")[1].strip().split("; ")
    forced = file_of("main_kernel_0", {"class": "launches", "launches": [{"form": other}]}, "cuda:sm_90a")
    (tmp_path / "own.json").write_text(json.dumps(forced))
    command(tmp_path, *flags, "-o", "forced.motet")
    (kernel,) = json.loads(command(tmp_path, "inspect", "forced.motet", "--schedules", "--json").stdout)["kernels"]
    (launch,) = kernel["schedule"]["launches"]
    assert launch["form"] == other
