"""Programs compiled and run inside the test's own process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.prepared import load_mlir

from motet.artifact.writer import write_artifact
from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import Program
from motet.compiler.targets.cpu import X86_64_V3, X86_64_V4, CpuTarget
from motet.compiler.verify.oracle import run_oracle
from motet.cpu_features import host_features
from motet.runtime import Session, load

TARGETS = [
    pytest.param(target, id=target.name, marks=pytest.mark.skipif(
        not set(target.requires) <= set(host_features()), reason=f"this processor is no {target.name}"
    ))
    for target in (X86_64_V4, X86_64_V3)
]


def build(text: str, target: CpuTarget) -> Session:
    """A session for MLIR text compiled for one target."""
    program = load_mlir(text, "test.mlir")
    with program.module.context, ir.Location.unknown():
        built = pipeline.build(program, [target], 1, lambda what, fraction: None)
    return load(write_artifact(built.manifest, built.members, built.parameters))


def run(text: str, inputs: list[np.ndarray], target: CpuTarget, function: str = "main") -> list[np.ndarray]:
    """The results of `function`, always as a list."""
    results = build(text, target)[function](*inputs)
    return list(results) if isinstance(results, tuple) else [results]


def run_oracle_text(text: str, function: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """`run_oracle` on MLIR text without parameters."""
    with ir.Context(), ir.Location.unknown():
        return run_oracle(Program(ir.Module.parse(text)), function, inputs)


def kinds(text: str, target: CpuTarget) -> list[str]:
    """The classes that the program's kernels took."""
    return [kernel.kind for kernel in build(text, target).variants[0].kernels]


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    generator = np.random.default_rng(seed + sum(shape))
    if np.dtype(dtype).kind in "iu":
        return generator.integers(-8, 8, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)
