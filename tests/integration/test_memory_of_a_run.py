"""What memory a run takes: as much as `motet inspect` says, and one line where it cannot be had."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import environment

import motet
from motet import builder as mb

MIB = 1 << 20
# Code, tables, huge pages and Python's own objects come on top. What is measured is resident memory, in a process
# that has run another artifact before.
FACTOR, SLACK = 1.03, 5 * MIB

CHILD = """
import resource, sys
import numpy as np
import motet

def status(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024

warm, file, threads, *shape = sys.argv[1:]
motet.load(warm, threads=int(threads))(np.ones((3, 5), np.float32), np.ones((3, 5), np.float32))
x = np.ones(tuple(map(int, shape)), np.float32)
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
session = motet.load(file, threads=int(threads))
for _ in range(4):
    session(x)
print(status("VmHWM") - before)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures by Linux's /proc")


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def layers(g: mb.Graph, rows: int | str) -> None:
    """Three products with 16 MiB of weights each; what is between them lives in the arena. Weights for another
    processor, as many bytes, are in the file and not in memory."""
    value = g.input("x", (rows, 2048))
    for _ in range(3):
        value = mb.relu(value @ g.constant(_random(2048, 2048) / 50))
    g.result(value)


def wide(g: mb.Graph) -> None:
    layers(g, 4096)


def dynamic(g: mb.Graph) -> None:
    layers(g, "rows")


def images(g: mb.Graph) -> None:
    """Convolutions whose intermediates are far larger than their weights."""
    value = g.input("x", (4, 16, 128, 128))
    for channels in (32, 32, 16):
        value = mb.relu(mb.conv2d(value, g.constant(_random(channels, value.shape[1], 3, 3) / 9), padding=1))
    g.result(value)


def attention(g: mb.Graph) -> None:
    """Scores of 16 MiB between two products, and their softmax."""
    value = g.input("x", (4, 1024, 64))
    g.result(mb.softmax(value @ mb.transpose(value, (0, 2, 1))) @ value)


# A loop takes the generic path. It hands a row of sums from turn to turn; what a turn needs besides is planned.
LOOP = """
#both = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
func.func @main(%x: tensor<2048x2048xf32>) -> tensor<2048xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %large = tensor.empty() : tensor<2048x2048xf32>
  %small = tensor.empty() : tensor<2048xf32>
  %start = linalg.fill ins(%zero : f32) outs(%small : tensor<2048xf32>) -> tensor<2048xf32>
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%row = %start) -> tensor<2048xf32> {
    %moved = linalg.generic {indexing_maps = [#both, #column, #both], iterator_types = ["parallel", "parallel"]}
      ins(%x, %row : tensor<2048x2048xf32>, tensor<2048xf32>) outs(%large : tensor<2048x2048xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %d = arith.addf %a, %b : f32
      linalg.yield %d : f32
    } -> tensor<2048x2048xf32>
    %turned = linalg.transpose ins(%moved : tensor<2048x2048xf32>) outs(%large : tensor<2048x2048xf32>)
      permutation = [1, 0]
    %sums = linalg.reduce ins(%turned : tensor<2048x2048xf32>) outs(%start : tensor<2048xf32>) dimensions = [0]
      (%a: f32, %b: f32) {
        %s = arith.addf %a, %b : f32
        linalg.yield %s : f32
      }
    %more = linalg.generic {indexing_maps = [#both, #column, #row], iterator_types = ["parallel", "reduction"]}
      ins(%turned, %sums : tensor<2048x2048xf32>, tensor<2048xf32>) outs(%start : tensor<2048xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %d = arith.mulf %a, %b : f32
      %s = arith.maximumf %c, %d : f32
      linalg.yield %s : f32
    } -> tensor<2048xf32>
    scf.yield %more : tensor<2048xf32>
  }
  return %r : tensor<2048xf32>
}
"""

CASES: dict[str, tuple[Callable[[mb.Graph], None] | str, tuple[int, ...]]] = {
    "wide": (wide, (4096, 2048)), "dynamic": (dynamic, (3000, 2048)), "images": (images, (4, 16, 128, 128)),
    "attention": (attention, (4, 1024, 64)), "loop": (LOOP, (2048, 2048)),
}


def evaluate(expression: int | str | list, symbols: dict[str, int]) -> int:
    """An expression of the manifest, as its schema describes them."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return symbols[expression]
    left, right = (evaluate(operand, symbols) for operand in expression[1:])
    return {
        "+": left + right, "-": left - right, "*": left * right, "//": left // max(right, 1),
        "ceildiv": -(-left // max(right, 1)), "max": max(left, right), "min": min(left, right),
    }[expression[0]]


def planned(file: Path, shape: tuple[int, ...], threads: int) -> int:
    """Bytes that `motet inspect` says a call takes."""
    outcome = subprocess.run(
        [sys.executable, "-m", "motet", "inspect", str(file), "--json"], env=environment(), text=True,
        capture_output=True, timeout=240, check=True,
    )
    description = json.loads(outcome.stdout)
    symbols = {s["name"]: shape[s["axis"]] for s in description["functions"][0].get("symbols", [])}
    chosen = motet.load(file)._variant.target  # type: ignore[attr-defined]
    (variant,) = (each for each in description["variants"] if each["target"] == chosen)
    memory = {name: evaluate(size, symbols) for name, size in variant["schedules"]["main"]["memory"].items()}
    return memory["parameters"] + memory["arena"] + memory["results"] + threads * memory["scratch_per_thread"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_peak_memory_is_what_inspect_says(name: str, threads: int, compiled: Path, tmp_path: Path) -> None:
    program, shape = CASES[name]
    if not isinstance(program, str):
        with mb.Graph("main") as g:
            program(g)
        program = g
    file = tmp_path / "x.motet"
    motet.compile(program).save(file)
    outcome = subprocess.run(
        [sys.executable, "-c", CHILD, str(compiled / "add.motet"), str(file), str(threads), *map(str, shape)],
        env=environment(), text=True, capture_output=True, timeout=240,
    )
    assert outcome.returncode == 0, outcome.stderr
    measured, plan = int(outcome.stdout), planned(file, shape, threads)
    assert plan / FACTOR - SLACK <= measured <= FACTOR * plan + SLACK
