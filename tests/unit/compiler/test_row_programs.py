"""Programs over rows, from builder to result: odd lengths, single rows and columns, NaN, infinities, masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.compiler.building import TARGETS, random

from motet import builder as mb
from motet.artifact.writer import write_artifact
from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.cpu import CpuTarget
from motet.runtime import Session, load

SHAPES = [(1, 1), (1, 31), (7, 1), (3, 8), (5, 17), (13, 61), (2, 127), (3, 1031), (2, 33000)]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def built_log_softmax(x: mb.Tensor) -> mb.Tensor:
    shifted = x - mb.reduce_max(x, axes=(-1,), keepdims=True)
    return shifted - mb.log(mb.reduce_sum(mb.exp(shifted), axes=(-1,), keepdims=True))


def rms_norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def built_rms_norm(x: mb.Tensor) -> mb.Tensor:
    return x * mb.rsqrt(mb.reduce_mean(x * x, axes=(-1,), keepdims=True) + 1e-5)


def standardised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def built_standardised(x: mb.Tensor) -> mb.Tensor:
    centred = x - mb.reduce_mean(x, axes=(-1,), keepdims=True)
    return centred * mb.rsqrt(mb.reduce_mean(centred * centred, axes=(-1,), keepdims=True) + 1e-5)


KINDS: dict[str, tuple[Callable, Callable]] = {
    "softmax": (lambda x: mb.softmax(x, axis=-1), softmax),
    "log_softmax": (built_log_softmax, log_softmax),
    "rms_norm": (built_rms_norm, rms_norm),
    "standardised": (built_standardised, standardised),
    "span": (
        lambda x: mb.reduce_max(x, axes=(-1,), keepdims=True) - mb.reduce_min(x, axes=(-1,), keepdims=True) + x,
        lambda x: x.max(-1, keepdims=True) - x.min(-1, keepdims=True) + x,
    ),
}


def session_of(graph: mb.Graph, target: CpuTarget) -> Session:
    program = graph.program()
    with program.module.context, ir.Location.unknown():
        built = pipeline.build(program, [target], 1, lambda what, fraction: None)
    return load(write_artifact(built.manifest, built.members, built.parameters))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rows_of_any_length_with_strange_numbers(kind: str, target: CpuTarget) -> None:
    ours, theirs = KINDS[kind]
    with mb.Graph("rows") as graph:
        for number, shape in enumerate(SHAPES):
            graph.result(ours(graph.input(f"x{number}", shape, "f32")), name=f"y{number}")
    session = session_of(graph, target)
    plain = [random(*shape, seed=3) * 4 for shape in SHAPES]
    strange = [x.copy() for x in plain]
    for x in strange:
        x[0, x.shape[1] // 2] = -np.inf
        x[-1, x.shape[1] // 3] = np.nan
        x[len(x) // 2, -1] = np.inf
    for arrays in (plain, strange):
        for got, x in zip(session(*arrays), arrays, strict=True):
            with np.errstate(all="ignore"):
                expected = theirs(x.astype(np.float64))
            np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", [-np.inf, -1e9, np.finfo(np.float32).min])
def test_masked_softmax_of_unknown_size(mask: float, target: CpuTarget) -> None:
    """What is masked out is exactly zero, in every row of a causal mask."""
    with mb.Graph("masked") as graph:
        graph.result(mb.softmax(graph.input("x", ("n", "m"), "f32"), axis=-1), name="y")
    session = session_of(graph, target)
    for size in (1, 2, 5, 16, 67, 150):
        x = random(size, size, seed=4)
        out = np.triu(np.ones((size, size), bool), 1)
        x[out] = mask
        got = session(x)
        assert (got[out] == 0).all()
        np.testing.assert_allclose(got, softmax(x.astype(np.float64)), rtol=1e-5)
