"""Mistakes in what runs at once, through the command line: one error each, with its place, or one warning."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.conftest import Run

Fails = Callable[..., str]

PROGRAM = """
module attributes {gpu.container_module} {
  gpu.module @k {
    gpu.func @scale(%x: memref<9xf32>, %y: memref<9xf32>, %n: index) kernel {
      %t = gpu.thread_id x
      %v = memref.load %x[%t] : memref<9xf32>
      %w = arith.addf %v, %v : f32
      memref.store %w, %y[%t] : memref<9xf32>
      gpu.return
    }
  }
  func.func @main(%x: memref<9xf32>, %y: memref<9xf32>) {
    %c1 = arith.constant 1 : index
    %b = arith.constant 1 : index
    %t = arith.constant 9 : index
    %start = gpu.wait async
    %m, %made = gpu.alloc async [%start] () : memref<9xf32>
    %0 = gpu.launch_func async [%made] @k::@scale blocks in (%b, %c1, %c1) threads in (%t, %c1, %c1)
      args(%x : memref<9xf32>, %m : memref<9xf32>, %c1 : index)
    %1 = gpu.launch_func async [%0] @k::@scale blocks in (%b, %c1, %c1) threads in (%t, %c1, %c1)
      args(%m : memref<9xf32>, %y : memref<9xf32>, %c1 : index)
    %2 = gpu.dealloc async [%1] %m : memref<9xf32>
    gpu.wait [%2]
    return
  }
  func.func private @other(%x: memref<9xf32>) {
    %elsewhere = gpu.wait async
    gpu.wait [%elsewhere]
    return
  }
}
"""
RUN = ("run", "p.mlir", "--function", "main", "--input", "9xf32=random:1", "--input", "9xf32=0")
SECOND = "%1 = gpu.launch_func async [%0] @k::@scale"
MISTAKES = {
    "a token that waits for itself": ("[%made] @k", "[%1] @k", 18, "does not dominate this use"),
    "a token of another function": ("[%0] @k", "[%elsewhere] @k", 20, "value defined outside the region"),
    "a kernel that is not there": (SECOND, SECOND.replace("@scale", "@scala"), 20, "'@k::@scala' is undefined"),
    "a module that is not there": (SECOND, SECOND.replace("@k", "@l"), 20, "@l::@scale is not in this file"),
    "too few arguments": (
        "%m : memref<9xf32>, %y : memref<9xf32>, %c1 : index", "%m : memref<9xf32>, %y : memref<9xf32>", 20,
        "got 2 kernel operands but expected 3",
    ),
    "an argument of another type": (
        "%y : memref<9xf32>, %c1 : index", "%y : memref<9xf32>, %y : memref<9xf32>", 20,
        "type of function argument 2 does not match",
    ),
    "a grid without blocks": ("%b = arith.constant 1", "%b = arith.constant 0", 18, "the grid has size 0 in x"),
    "a grid with too many blocks": (
        "%b = arith.constant 1", "%b = arith.constant 2147483648", 18,
        "the grid has size 2147483648 in x; expected 1 to 2147483647",
    ),
    "a block with too many threads": (
        "%t = arith.constant 9", "%t = arith.constant 1025", 18, "the block has size 1025 in x; expected 1 to 1024",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_with_launches_are_located(fails: Fails, tmp_path: Path, mistake: str) -> None:
    old, new, line, message = MISTAKES[mistake]
    assert PROGRAM.count(old) >= 1
    (tmp_path / "p.mlir").write_text(PROGRAM.replace(old, new, 1))
    error = fails("compile", "p.mlir", "--device", "host{cpu=x86-64-v3}")
    assert re.match(rf"p\.mlir:{line}:\d+: ", error), error
    assert message in error


def test_the_program_without_mistakes_runs_as_written(motet: Run, tmp_path: Path) -> None:
    (tmp_path / "p.mlir").write_text(PROGRAM)
    outcome = motet(*RUN, "--verify")
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr == ""


def test_memory_that_is_never_freed_is_a_warning_with_its_place(motet: Run, tmp_path: Path) -> None:
    (tmp_path / "p.mlir").write_text(PROGRAM.replace("%2 = gpu.dealloc async [%1] %m : memref<9xf32>\n", "")
                                     .replace("[%2]", "[%1]"))
    outcome = motet(*RUN)
    assert outcome.returncode == 0, outcome.stderr
    [line] = outcome.stderr.splitlines()
    assert re.match(r"(warning: )?p\.mlir:17:\d+: gpu\.alloc: memory", line), line


CONVOLUTIONS = """
func.func @main(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %0 = linalg.matmul ins(%x, %w : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>)
    -> tensor<64x64xf32>
  %1 = linalg.matmul ins(%0, %w : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>)
    -> tensor<64x64xf32>
  %2 = linalg.matmul ins(%1, %0 : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>)
    -> tensor<64x64xf32>
  return %2 : tensor<64x64xf32>
}
"""


def test_a_limit_below_what_must_be_had_names_what_must(motet: Run, fails: Fails, tmp_path: Path) -> None:
    (tmp_path / "p.mlir").write_text(CONVOLUTIONS)
    device = ("--device", "host{cpu=x86-64-v3}")
    error = fails("compile", "p.mlir", *device, "--option", "memory-limit=100")
    least = re.search(r"expected memory-limit=(\d+) or more", error)
    assert least is not None, error
    assert int(least[1]) >= 2 * 4 * 64 * 64
    assert motet("compile", "p.mlir", *device, "--option", f"memory-limit={least[1]}").returncode == 0
    fails("compile", "p.mlir", *device, "--option", f"memory-limit={int(least[1]) - 1}")
