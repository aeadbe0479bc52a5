"""Damaged artifacts: bytes changed and files cut short, and manifests changed with right sums.

Each must be refused with an error of Motet's, or give what the whole artifact gives.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.parent import Child, Ended

from motet.artifact.reader import Artifact
from motet.errors import MotetError
from motet.runtime import load

BATCH = 500  # damaged artifacts in one job of a child
PROGRAM = """
func.func @main(%x: tensor<5x7xf32>, %y: tensor<7x3xf32>) -> (tensor<5x3xf32>, tensor<5x7xf32>) {
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<1.5> : tensor<5x3xf32>
  %e = tensor.empty() : tensor<5x3xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x3xf32>) -> tensor<5x3xf32>
  %p = linalg.matmul ins(%x, %y : tensor<5x7xf32>, tensor<7x3xf32>) outs(%f : tensor<5x3xf32>) -> tensor<5x3xf32>
  %s = linalg.add ins(%p, %w : tensor<5x3xf32>, tensor<5x3xf32>) outs(%e : tensor<5x3xf32>) -> tensor<5x3xf32>
  %g = tensor.empty() : tensor<5x7xf32>
  %t = linalg.exp ins(%x : tensor<5x7xf32>) outs(%g : tensor<5x7xf32>) -> tensor<5x7xf32>
  return %s, %t : tensor<5x3xf32>, tensor<5x7xf32>
}
"""


def whole_artifact(folder: Path) -> bytes:
    """The bytes of an artifact of two kernels."""
    from tests.fuzz.compiling import Options, compile_program

    path = folder / "whole.motet"
    compile_program(PROGRAM, "mlir", Options()).save(path)
    return path.read_bytes()


def damaged(data: bytes, rng: random.Random) -> bytes:
    """`data` with some bytes changed, cut short, or with a part twice or not at all."""
    kind = rng.choice(("bits", "bits", "bytes", "cut", "without", "twice", "zeros"))
    if kind == "cut":
        return data[: rng.randrange(len(data))]
    begin = rng.randrange(len(data))
    end = min(len(data), begin + rng.choice((1, 2, 4, 8, 64, 512)))
    if kind == "without":
        return data[:begin] + data[end:]
    if kind == "twice":
        return data[:end] + data[begin:end] + data[end:]
    changed = bytearray(data)
    if kind == "zeros":
        changed[begin:end] = bytes(end - begin)
    else:
        for _ in range(rng.choice((1, 1, 2, 5))):
            place = rng.randrange(len(changed))
            changed[place] = rng.randrange(256) if kind == "bytes" else changed[place] ^ (1 << rng.randrange(8))
    return bytes(changed)


def try_damaged(seeds: list[int], say: Any) -> dict[str, Any]:
    """In a child: how many were refused, the same as the whole, and which were neither."""
    arrays = [np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7), np.ones((7, 3), np.float32)]
    counts: Counter[str] = Counter()
    failures: list[tuple[int, str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        data = whole_artifact(Path(folder))
        expected = load(Artifact.from_bytes(data), threads=1)(*arrays)
        for seed in seeds:
            say(f"artifact [{seed}]")
            path = Path(folder) / f"{seed % 2}.motet"
            path.write_bytes(damaged(data, random.Random(f"artifact {seed}")))
            try:
                with load(str(path), threads=1) as session:
                    found = session(*arrays)
            except MotetError as error:
                counts["refused"] += 1
                if "\n" in str(error):
                    failures.append((seed, "error", f"several lines: {error}"))
            except Exception as error:
                failures.append((seed, "error", f"{type(error).__name__}: {error}"))
            else:
                same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, expected, strict=True))
                counts["the same"] += same
                if not same:
                    failures.append((seed, "wrong", "other results"))
    return {"counts": dict(counts), "failures": failures}


def run_artifacts(arguments: argparse.Namespace) -> int:
    """The command: so many damaged artifacts, then manifests where the package has a mutator of them."""
    count = arguments.count or 2000
    start = int(arguments.what[0]) if arguments.what else arguments.seed or 0
    count = 1 if arguments.what else count
    counts: Counter[str] = Counter()
    failures: list[tuple[int, str, str]] = []
    child = Child()
    for begin in range(start, start + count, BATCH):
        seeds = list(range(begin, min(begin + BATCH, start + count)))
        while seeds:
            try:
                answer = child.ask({"artifacts": seeds})
            except Ended as end:
                guilty = int(end.doing.partition("[")[2].rstrip("]") or seeds[0])
                failures.append((guilty, end.kind, end.text))
                seeds = [seed for seed in seeds if seed > guilty]
                continue
            counts.update(answer["outcomes"]["counts"])
            failures += [tuple(failure) for failure in answer["outcomes"]["failures"]]
            seeds = []
        sys.stderr.write(f"{begin + BATCH - start:,} artifacts, {len(failures)} failures\n")
    child.close()
    for seed, kind, text in failures:
        print(f"artifact {seed}: {kind}: {text}\n  python -m tests.fuzz artifacts {seed}")
    kinds = Counter(kind for _, kind, _ in failures)
    print(f"damaged artifacts {count:,}, refused {counts['refused']:,}, the same {counts['the same']:,}, "
          f"wrong {kinds['wrong']}, crashes {kinds['crash'] + kinds['error']}, hangs {kinds['hang']}")
    changed = False if arguments.what else _manifests(count, start)
    return 1 if failures or changed else 0


def _manifests(count: int, seed: int) -> bool:
    """Whether changed manifests found a failure; False where there is no module that changes them."""
    try:
        manifests = importlib.import_module("tests.fuzz.manifests")
    except ImportError:
        return False
    failed = 0
    for case in manifests.CASES:
        found = manifests.run(-(-count // len(manifests.CASES)), seed, manifests.compiled(case), case)
        print(f"manifests of {case}: refused {found.refused:,}, the same {found.same:,}, wrong {found.other}, "
              f"faults {found.faults}, crashes and hangs {len(found.stopped)}")
        print("\n".join(found.stopped), end="\n" if found.stopped else "")
        failed += found.other + found.faults + len(found.stopped)
    return failed > 0
