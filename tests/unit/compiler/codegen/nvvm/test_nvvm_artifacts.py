"""Artifacts with launches as they were written: what is in them, and what is said of launches that have no code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.compiler.codegen.nvvm import launches
from tests.unit.compiler.codegen.nvvm.launches import TILE, launch, program, tree

import motet
from motet.artifact.reader import Artifact
from motet.errors import CompileError

BOTH = {"gpu": "cuda{arch=sm_90a+ptx80},@cpu", "cpu": "host{cpu=x86-64-v3}"}


def described(artifact: Artifact, target: str) -> dict[str, Any]:
    """What the driver is told of each kernel of a target."""
    variant = next(variant for variant in artifact.manifest.variants if variant.target == target)
    names = [name for name in variant.objects if name.endswith(".json")]
    found = [json.loads(bytes(artifact.member(name))) for name in names]
    return {each["kernel"]: each for each in found}


def test_one_artifact_has_code_for_a_gpu_and_for_the_host() -> None:
    case = launches.all_reduce(3, 45)
    artifact = motet.compile(case.text, devices=BOTH, cache=False)
    found = [(variant.family, variant.target) for variant in artifact.manifest.variants]
    assert found[:2] == [("cuda", "sm_90a"), ("cuda", "ptx80")]
    assert {family for family, _ in found[2:]} == {"host"}
    inputs = case.inputs()
    got = motet.load(artifact)(*[array.copy() for array in inputs])  # no GPU here: the device falls back
    np.testing.assert_allclose(got, case.expected(*inputs)[0], rtol=1e-6)


def test_each_launch_runs_where_it_says() -> None:
    """Two launches, one for the GPU and one for the host, with a transfer between them."""
    one = """gpu.launch_func @k::@f blocks in (%c1, %c1, %c1) threads in (%n, %c1, %c1)
        args(%{} : memref<45xf32>, %{} : memref<45xf32>) {{motet.affinity = "{}"}}"""
    text = program("""
    gpu.func @f(%x: memref<45xf32>, %y: memref<45xf32>) kernel {
      %i = gpu.thread_id x
      %v = memref.load %x[%i] : memref<45xf32>
      %s = gpu.all_reduce maximumf %v {} : (f32) -> f32
      %d = arith.subf %v, %s : f32
      memref.store %d, %y[%i] : memref<45xf32>
      gpu.return
    }""", "%x: memref<45xf32>, %y: memref<45xf32>", f"""
    %n = arith.constant 45 : index
    %m = memref.alloc() : memref<45xf32>
    {one.format("x", "m", "gpu")}
    {one.format("m", "y", "cpu")}""")
    artifact = motet.compile(text, devices=BOTH, cache=False)
    plan = artifact.manifest.plans["main"]
    names = [device.name for device in artifact.manifest.devices]
    steps = [(step.op, names[step.device]) for step in plan.steps]
    assert [step for step in steps if step[0] == "run"] == [("run", "gpu"), ("run", "cpu")]
    assert ("transfer", "cpu") in steps
    x = launches.values(45)
    found = motet.load(artifact)(x, np.zeros(45, np.float32))
    np.testing.assert_allclose(found, x - x.max(), rtol=1e-6)


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "ptx80"])
def test_every_target_has_code(target: str) -> None:
    artifact = motet.compile(launches.all_reduce(3, 77).text, devices={"": f"cuda{{arch={target}}}"}, cache=False)
    kernels = described(artifact, target)
    kernel = kernels["main_kernel_0"]
    assert (kernel["threads"], kernel["warps"], kernel["shared"]) == (77, 3, 3 * 4)
    assert kernel["registers"] > 0
    assert kernel["spills"] == 0
    command = artifact.manifest.variants[0].schedules["main"].commands[-1]
    assert (command.kernel, command.tasks) == ("main_kernel_0", 3)


def test_blocks_whose_threads_have_nothing_in_common_are_packed() -> None:
    artifact = motet.compile(launches.mathematics(1000, 27).text, devices={"": "cuda{arch=sm_90a}"}, cache=False)
    assert described(artifact, "sm_90a")["main_kernel_0"]["threads"] == 256
    assert artifact.manifest.variants[0].schedules["main"].commands[-1].tasks == -(-38 * 27 // 256)


def test_workgroup_memory_beyond_48_kib_is_asked_for() -> None:
    text = tree(4, 512).text.replace(f"512xf32, {TILE}", f"50000xf32, {TILE}")
    artifact = motet.compile(text, devices={"": "cuda{arch=sm_90a}"}, cache=False)
    assert described(artifact, "sm_90a")["main_kernel_0"]["shared"] == 200000


def test_inspect_shows_the_code_and_what_a_launch_takes(tmp_path: Path) -> None:
    file = tmp_path / "a.motet"
    motet.compile(launches.all_reduce(3, 45).text, devices={"": "cuda{arch=sm_90a}"}, cache=False).save(file)
    command = [sys.executable, "-m", "motet", "inspect", str(file), "--kernel", "main_kernel_0"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "define ptx_kernel void @main_kernel_0(" in found
    assert '"threads": 45' in found


def test_results_are_written_in_place_where_they_may_be() -> None:
    """The destination holds something before: it is brought there, unless it is there already, and nothing else."""
    artifact = motet.compile(launches.histogram(100, 7, 32).text, devices={"": "cuda{arch=sm_90a}"}, cache=False)
    schedule = artifact.manifest.variants[0].schedules["main"]
    assert [command.kernel for command in schedule.commands] == ["main_kernel_0_keep", "main_kernel_0"]
    assert {buffer.kind for buffer in schedule.buffers} == {"input", "result"}


STORE = "memref.store %v, %x[%i] : memref<64xf32>"
LOAD = "%v = memref.load %x[%i] : memref<64xf32>"
X = "%x: memref<64xf32>"


def kernel(body: str) -> str:
    return f"gpu.func @f({X}) kernel attributes {{motet.as_written}} {{\n%i = gpu.thread_id x\n{body}\ngpu.return\n}}"


LAUNCH = launch("f", [1], [64], X.replace(":", " :"))
SEQUENCE = """func.func @main(%x: memref<64xf32>) {
  affine.for %i = 1 to 64 {
    %a = affine.load %x[%i - 1] : memref<64xf32>
    %s = math.sin %a : f32
    affine.store %s, %x[%i] : memref<64xf32>
  }
  return
}"""


@pytest.mark.parametrize(("text", "device", "message"), [
    (program(kernel(f"{LOAD}\ngpu.barrier\n{STORE}"), f"{X}, %n: i64", f"""
        %m = arith.index_cast %n : i64 to index
        gpu.launch_func @k::@f blocks in (%c1, %c1, %c1) threads in (%m, %c1, %c1) args({X.replace(':', ' :')})"""),
     "cuda{arch=sm_90a}", "gpu.launch_func: the size of a block is only known when running"),
    (tree(4, 512).text.replace(f"512xf32, {TILE}", f"50000xf32, {TILE}"), "cuda{arch=sm_86}",
     "gpu.launch_func: a block needs 200000 bytes of workgroup memory; sm_86 has 101376"),
    (tree(4, 64).text, "hip{arch=gfx942}", "has no code for hip devices"),
    (program(kernel(f"{LOAD}\ngpu.barrier\n{STORE}"), X, launch("f", [2**30, 1000], [64], X.replace(":", " :"))),
     "cuda{arch=sm_90a}", "gpu.launch_func: a grid of 1073741824000 blocks; expected at most 2147483647 altogether"),
    (SEQUENCE, "cuda{arch=sm_90a}", "no code can be made for cuda devices: operation tensor.insert: it writes a single "
     "element, as loops do whose turns depend on one another; place its operations on another device"),
])  # fmt: skip
def test_what_has_no_code_is_one_error_with_its_place(text: str, device: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        motet.compile(text, devices={"": device}, cache=False)
    assert message in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.line > 0


@pytest.mark.parametrize("dtype", ["f64", "bf16", "i16", "i64", "f8E4M3FN"])
def test_numbers_of_every_size_have_code(dtype: str) -> None:
    text = program(kernel(f"{LOAD}\ngpu.barrier\n{STORE}"), X, LAUNCH).replace("f32", dtype)
    artifact = motet.compile(text, devices={"": "cuda{arch=sm_90a}"}, cache=False)
    assert [kernel.kind for kernel in artifact.manifest.variants[0].kernels] == ["launch"]


def test_what_is_printed_is_printed_on_a_gpu_and_named_for_the_host(caplog: pytest.LogCaptureFixture) -> None:
    text = program(kernel(f'{LOAD}\ngpu.barrier\ngpu.printf "%f\\n", %v : f32\n{STORE}'), X, LAUNCH)
    from tests.prepared import load_mlir

    load_mlir(text, "test.mlir")
    assert ["gpu.printf: nothing is printed on the host" in record.getMessage() for record in caplog.records] == [True]
    artifact = motet.compile(text, devices={"": "cuda{arch=ptx80}"}, cache=False)
    name = next(name for name in artifact.manifest.variants[0].objects if name.endswith("main_kernel_0.ptx"))
    assert b"vprintf" in bytes(artifact.member(name))
