"""The commands from end to end: compile, run, inspect, bench, opt, devices."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from motet.options import Options

pytestmark = pytest.mark.usefixtures("all_levels")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_compile_writes_one_file_named_after_the_input(motet: Run, add: Path, tmp_path: Path) -> None:
    outcome = motet("compile", add.name)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr == ""  # no progress in a pipe
    assert {path.name for path in tmp_path.iterdir()} == {"add.mlir", "add.motet"}


def test_compile_is_repeatable_to_the_byte(motet: Run, add: Path, tmp_path: Path) -> None:
    for name in ("a.motet", "b.motet"):
        assert motet("compile", add.name, "-o", name, "--no-cache").returncode == 0
    assert (tmp_path / "a.motet").read_bytes() == (tmp_path / "b.motet").read_bytes()


def test_proofs_count_what_they_compare(motet: Run, tmp_path: Path) -> None:
    (tmp_path / "two.mlir").write_text("""
        func.func @two(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
          %e = tensor.empty() : tensor<8x8xf32>
          %z = arith.constant 0.0 : f32
          %f = linalg.fill ins(%z : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
          %x = linalg.matmul ins(%a, %b : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>)
            -> tensor<8x8xf32>
          %y = linalg.matmul ins(%x, %b : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>)
            -> tensor<8x8xf32>
          return %x, %y : tensor<8x8xf32>, tensor<8x8xf32>
        }""")  # fmt: skip
    outcome = motet("compile", "two.mlir", "--prove", "--device", "host{cpu=x86-64-v3}")
    assert outcome.returncode == 0, outcome.stderr
    rows = [line.split() for line in outcome.stdout.splitlines()]
    assert ["two", "x86-64-v3", "2", "2", "4"] in rows, outcome.stdout  # both results are written, inputs only read


def test_program_is_read_from_standard_input(tmp_path: Path, add: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-m", "motet", "opt", "-", "--pipeline", "cse"], input=add.read_text(), text=True,
        capture_output=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent / "src")},
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "linalg.add" in outcome.stdout


def test_artifact_and_program_give_the_same_result(
    motet: Run, add: Path, compiled: Path, tmp_path: Path
) -> None:
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    y = np.random.default_rng(2).standard_normal((3, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    for source in (add, compiled / "add.motet"):
        outcome = motet("run", source, "--input", "@x.npy", "--input", "@y.npy", "--output", "z.npy")
        assert outcome.returncode == 0, outcome.stderr
        np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), x + y)


def test_results_are_printed_with_their_type(motet: Run, compiled: Path) -> None:
    outcome = motet(
        "run", compiled / "rows.motet", "--function", "square", "--input", "6xi32=1,2,3,4,5,-6"
    )
    assert outcome.stdout == "result 0: 6xi32 = [ 1,  4,  9, 16, 25, 36]\n"


@pytest.mark.parametrize("rows", [1, 2, 7, 0])
def test_dynamic_extent_is_that_of_the_input(motet: Run, compiled: Path, rows: int) -> None:
    outcome = motet(
        "run", compiled / "rows.motet", "--function", "double", "--input", f"{rows}x4xf32=1.5",
        "--expected", f"{rows}x4xf32=3",
    )
    assert outcome.returncode == 0, outcome.stderr
    assert f"result 0: {rows}x4xf32 = " in outcome.stdout
    assert "result 0: as expected" in outcome.stdout


def test_unexpected_result_is_status_1_and_names_the_first_index(motet: Run, compiled: Path) -> None:
    outcome = motet(
        "run", compiled / "rows.motet", "--function", "square", "--input", "6xi32=1,2,3,4,5,6",
        "--expected", "6xi32=1,4,9,0,25,0",
    )
    assert outcome.returncode == 1
    assert outcome.stderr.splitlines() == [
        "error: result 0: 2 of 6 elements differ, the first at [3]: 16, expected 0; max abs error 36"
    ]


def test_example_fragment_agrees_with_the_oracle(motet: Run) -> None:
    outcome = motet(
        "run", EXAMPLES / "fragment.mlir", "--verify",
        "--input", "64x128xf32=random:1", "--input", "128x128xf32=random:2", "--input", "64x128xf32=0",
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "verified: result 0" in outcome.stdout


def test_devices_without_names_bind_in_the_order_of_the_program(motet: Run, tmp_path: Path) -> None:
    program, artifact = EXAMPLES / "two_devices.mlir", tmp_path / "two.motet"
    options = ["--device", "cpu=host", "--device", "acc=host,null", "--option", "keep-source=true"]
    assert motet("compile", program, "-o", artifact, *options).returncode == 0
    for file in (program, artifact):
        for flag in ("--device", "--iree-hal-target-device"):
            done = motet("run", file, flag, "host", flag, "host/1", "--input", "64x128xf32=random:1", "--verify")
            assert "agrees" in done.stdout, done.stderr
    for file, expected in ((artifact, "at most 2, for cpu, acc"), (program, "has only cpu, acc; expected at most 2")):
        done = motet("run", file, *["--device", "host"] * 3, "--input", "64x128xf32=1")
        assert done.returncode == 1
        assert expected in done.stderr


@pytest.mark.parametrize(("flags", "bound"), [
    (["host/2"], ["host/2", "host/2"]),
    (["host/2", "acc=host/1"], ["host/2", "host/1"]),
    (["cpu=host/1", "host/2"], ["host/1", "host/2"]),
    (["host/2", "host/1"], ["host/2", "host/1"]),
], ids=" ".join)
def test_a_program_binds_its_devices_as_its_artifact_does(
    motet: Run, tmp_path: Path, flags: list[str], bound: list[str]
) -> None:
    program, artifact = EXAMPLES / "two_devices.mlir", tmp_path / "two.motet"
    assert motet("compile", program, "-o", artifact).returncode == 0
    for file in (program, artifact):
        done = motet("run", file, "--dry-run", *(f"--device={flag}" for flag in flags))
        assert [line.split()[1] for line in done.stdout.splitlines()] == bound, done.stderr


def test_opt_gives_devices_to_the_passes_that_assign_them(motet: Run) -> None:
    program, flags = EXAMPLES / "two_devices.mlir", ["--iree-hal-target-device=acc=null", "--device=cpu=host"]
    done = motet("opt", program, *flags, "--pipeline", "read-devices,assign-devices")
    assert '"motet.device"() {alternatives = ["null"], sym_name = "acc"}' in done.stdout, done.stderr
    assert motet("opt", program, *flags, "--pipeline", "read-devices,place").returncode == 0
    done = motet("opt", program, *flags, "--pipeline", "cse")
    assert done.stderr == ("error: --device acc=null: no pass of the pipeline reads it; expected one of "
                           "assign-devices, place, without options\n")


def test_inspect_shows_functions_and_kernels(motet: Run, compiled: Path) -> None:
    outcome = motet("inspect", compiled / "rows.motet")
    assert outcome.returncode == 0, outcome.stderr
    for text in ("double(", "square(", "6xi32", "1 dispatches", "kernel", "scratch per thread"):
        assert text in outcome.stdout


def test_inspect_json_is_complete(motet: Run, compiled: Path) -> None:
    description = json.loads(motet("inspect", compiled / "add.motet", "--json").stdout)
    assert description["bytes"] == (compiled / "add.motet").stat().st_size
    assert [function["name"] for function in description["functions"]] == ["main"]
    for variant in description["variants"]:
        assert variant["code_bytes"] > 0
        assert variant["schedules"]["main"]["dispatches"] == 1
        assert variant["schedules"]["main"]["memory"]["results"] == 3 * 5 * 4


def test_bench_measures(motet: Run, compiled: Path) -> None:
    options = ("--repeat", "3", "--number", "5", "--threads", "1", "--json")
    result = json.loads(motet("bench", compiled / "add.motet", *options).stdout)
    assert (result["version"], result["kind"], len(result["samples"])) == (1, "calls", 3)
    assert result["number"] == 5
    assert result["threads"] == 1
    latency = result["latency"]
    assert 0 < latency["min"] <= latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"] < 1
    assert latency["calls"] == 15
    assert 0 <= result["overhead"] < 1 and result["traced"] >= 5
    assert [kernel["name"] for kernel in result["kernels"]] == ["main_kernel_0"]
    assert result["roof"]["flops"] > result["roof"]["bytes"] > 1e8


def test_bench_prints_a_profile(motet: Run, compiled: Path) -> None:
    outcome = motet("bench", compiled / "add.motet", "--min-time", "0.01", "--profile")
    assert outcome.returncode == 0, outcome.stderr
    assert "time per call" in outcome.stdout
    assert "main_kernel_0" in outcome.stdout and "p90 µs" in outcome.stdout
    others = [line for line in outcome.stderr.splitlines() if "the machine was disturbed" not in line]
    assert others == []


def test_bench_compares_two_programs(motet: Run, compiled: Path, add: Path, tmp_path: Path) -> None:
    twice = tmp_path / "twice.mlir"
    twice.write_text(add.read_text().replace("linalg.add", "linalg.mul"))
    options = ("--repeat", "7", "--min-time", "0.07", "--json")
    result = json.loads(motet("bench", compiled / "add.motet", add, *options).stdout)
    assert (result["kind"], result["agree"], result["largest_difference"]) == ("versus", True, 0.0)
    assert result["low"] <= result["ratio"] <= result["high"]
    assert [Path(each["file"]).name for each in result["contenders"]] == ["add.motet", add.name]
    outcome = motet("bench", add, twice, "--repeat", "2", "--min-time", "0.02", "--profile")
    assert "results DIFFER" in outcome.stdout and "A ÷ B" in outcome.stdout


def test_bench_measures_calls_in_flight(motet: Run, compiled: Path) -> None:
    options = ("--in-flight", "3", "--min-time", "0.1", "--function", "double", "--batch", "4", "--json")
    result = json.loads(motet("bench", compiled / "rows.motet", *options).stdout)
    assert (result["kind"], result["in_flight"]) == ("throughput", 3)
    assert result["calls"] == result["latency"]["calls"] >= 1
    assert result["items_per_second"] == pytest.approx(4 * result["calls"] / result["seconds"])


@pytest.mark.parametrize(("options", "said"), [
    (("add.motet", "rows.motet"), "no function 'main'"),
    (("add.motet", "add.motet", "--in-flight", "2"), "--in-flight: not with a second program"),
    (("add.motet", "--in-flight", "2", "--profile"), "--profile: not with --in-flight"),
    (("add.motet", "--batch", "2"), "--batch 2: .*no input whose first extent is dynamic"),
    (("rows.motet", "--function", "double", "--batch", "2", "--input", "2x3xf32=1"), "--batch 2: not with --input"),
    (("add.motet", "none.motet"), "none.motet"),
])
def test_bench_refuses_modes_that_exclude_each_other(
    fails: Callable[..., str], compiled: Path, options: tuple[str, ...], said: str
) -> None:
    given = [str(compiled / text) if text in ("add.motet", "rows.motet") else text for text in options]
    assert re.search(said, fails("bench", *given))


def test_bench_reports_no_rate_of_work_that_it_does_not_know(motet: Run, tmp_path: Path) -> None:
    """The manifest counts dynamic extents as a guess, from which `bench` made impossible rates."""
    source = tmp_path / "dynamic.mlir"
    source.write_text("""func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %r = math.exp %x : tensor<?xf32>
  return %r : tensor<?xf32>
}""")
    options = ("--input", "3xf32=1", "--repeat", "1", "--number", "1")
    result = json.loads(motet("bench", source, *options, "--json").stdout)
    assert result["flops"] == result["bytes"] == 0
    assert "GFLOP/s" not in motet("bench", source, *options).stdout


@pytest.mark.parametrize("seconds", ["1e999", "nan", "-1", "soon"])
def test_bench_refuses_times_that_never_end(motet: Run, compiled: Path, seconds: str) -> None:
    outcome = motet("bench", compiled / "add.motet", "--min-time", seconds)
    assert outcome.returncode == 2
    assert "--min-time" in outcome.stderr


def test_devices_lists_the_host(motet: Run) -> None:
    found = json.loads(motet("devices", "--json").stdout)
    host = next(device for device in found if device["uri"] == "host")
    assert host["available"]
    assert host["cores"] == len(os.sched_getaffinity(0))
    assert "host" in motet("devices").stdout


def test_devices_keeps_what_is_only_possible_from_what_is_there(motet: Run) -> None:
    found = json.loads(motet("devices", "--json").stdout)
    unplaced = [info for info in found if info["uri"] in ("embedded:gdb", "embedded:serial")]
    assert [info["available"] for info in unplaced] == [False, False]
    assert all(f"name it {info['uri']}?{info['described_by'][0]}=" in info["reason"] for info in unplaced)
    rows = [line.split()[0] for line in motet("devices").stdout.splitlines()]
    assert "modelled," in rows and not {"null", *(info["uri"] for info in unplaced)} & set(rows)


def test_option_help_lists_every_option(motet: Run) -> None:
    outcome = motet("compile", "--option", "help")
    listed = {line.split()[0].replace("-", "_") for line in outcome.stdout.splitlines() if line[2:3] != " "}
    assert outcome.returncode == 0 and listed == {field.name for field in dataclasses.fields(Options)}


@pytest.mark.parametrize("stage", ["program", "normalised", "kernels", "scheduled", "llvm", "assembly"])
def test_every_stage_can_be_printed(motet: Run, add: Path, tmp_path: Path, stage: str) -> None:
    outcome = motet("compile", add.name, "--emit", stage, "-o", "stage.txt")
    assert outcome.returncode == 0, outcome.stderr
    assert "main" in (tmp_path / "stage.txt").read_text()
    assert not (tmp_path / "add.motet").exists()


def test_external_parameters_stand_beside_the_artifact(motet: Run, tmp_path: Path) -> None:
    weights = np.random.default_rng(3).standard_normal((40, 70)).astype(np.float32)
    text = f'dense<"0x{weights.tobytes().hex().upper()}"> : tensor<40x70xf32>'
    (tmp_path / "dense.mlir").write_text(f"""
func.func @main(%x: tensor<5x40xf32>) -> tensor<5x70xf32> {{
  %w = arith.constant {text}
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<5x70xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<5x70xf32>) -> tensor<5x70xf32>
  %y = linalg.matmul ins(%x, %w : tensor<5x40xf32>, tensor<40x70xf32>) outs(%init : tensor<5x70xf32>)
    -> tensor<5x70xf32>
  return %y : tensor<5x70xf32>
}}
""")
    outcome = motet("compile", "dense.mlir", "--parameters", "external")
    assert outcome.returncode == 0, outcome.stderr
    assert (tmp_path / "dense.safetensors").stat().st_size >= weights.nbytes
    x = np.random.default_rng(4).standard_normal((5, 40)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", (x.astype(np.float64) @ weights.astype(np.float64)).astype(np.float32))
    outcome = motet("run", "dense.motet", "--input", "@x.npy", "--expected", "@y.npy")
    assert outcome.returncode == 0, outcome.stderr
    (tmp_path / "dense.safetensors").unlink()
    outcome = motet("run", "dense.motet", "--input", "@x.npy")
    assert outcome.returncode == 1
    assert "dense.safetensors" in outcome.stderr and len(outcome.stderr.splitlines()) == 1


def test_passes_are_reported_on_standard_error(motet: Run, add: Path, tmp_path: Path) -> None:
    for _ in range(2):  # the second time the artifact is in the cache
        outcome = motet("compile", add.name, "--print-after", "outline-kernels", "--time-passes")
        assert outcome.returncode == 0, outcome.stderr
        assert "// ----- after outline-kernels -----\n" in outcome.stderr and "func.func private" in outcome.stderr
        assert "hoist-constants" in outcome.stderr and "everything else" in outcome.stderr
        assert "hoist-constants" not in outcome.stdout and (tmp_path / "add.motet").exists()


def test_a_pass_that_there_is_not_is_refused(motet: Run, add: Path) -> None:
    outcome = motet("compile", add.name, "--print-after", "outline-kernel")
    assert outcome.returncode == 1
    assert outcome.stderr.startswith("error: --print-after outline-kernel: no such pass; expected one of ")
    assert "outline-kernels" in outcome.stderr and outcome.stderr.count("\n") == 1
