"""The same text of a schedule by Motet and by XTC (xtc-tools), on the same operands.

XTC is not among Motet's dependencies: XTC_PYTHON names a Python that has it.
"""

import json
from typing import Any

import numpy as np
import pytest
from benchmarks.lab_peers import search_peer
from benchmarks.xtc_peer import BACKENDS, XtcRequest, find_xtc, run_xtc

from motet.lab.evaluation import evaluate
from motet.lab.language import parse_schedule
from motet.lab.subject import compile_with, open_program, subject_of
from motet.runtime.session import load

XTC = find_xtc()
needs_xtc = pytest.mark.skipif(XTC is None, reason="XTC is not installed: set XTC_PYTHON")
PRODUCT: dict[str, Any] = {"i": {}, "j": {}, "k": {}, "i#4": {"unroll": None}, "j#16": {"vectorize": None}}
CASES: list[tuple[str, str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("matmul", "matmul:8x32x19", [(8, 19), (19, 32)], PRODUCT),
    ("matmul", "matmul:12x16x5", [(12, 5), (5, 16)], {"j": {}, "k": {}, "i": {}, "j#8": {"vectorize": None}}),
    ("matmul", "matmul:32x32x64", [(32, 64), (64, 32)],
     {"k": {}, "i": {}, "j": {}, "k#16": {}, "i#2": {"unroll": None}, "j#32": {"vectorize": None}}),
    ("matmul", "matmul:21x32x12", [(21, 12), (12, 32)],
     {"i": {}, "j": {}, "k": {}, "k#4": {"unroll": None}, "j#16": {"vectorize": None}}),
    ("conv2d", "conv2d:1x8x8x3,3x3x3x16", [(1, 8, 8, 3), (3, 3, 3, 16)],
     {"b": {}, "h": {}, "w": {}, "r": {}, "s": {}, "c": {}, "f": {}, "w#3": {"unroll": None},
      "f#16": {"vectorize": None}}),
    ("conv2d", "conv2d:2x11x11x4,5x5x4x8:stride=2", [(2, 11, 11, 4), (5, 5, 4, 8)],
     {"b": {}, "h": {}, "w": {}, "r": {}, "s": {}, "c": {}, "f": {}, "f#8": {"vectorize": None}}),
]


def operands(shapes: list[tuple[int, ...]]) -> list[Any]:
    random = np.random.default_rng(7)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@needs_xtc
@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("operator, program, shapes, schedule", CASES)
def test_results_of_one_text_agree(
    operator: str, program: str, shapes: list[tuple[int, ...]], schedule: dict[str, Any], backend: str
):
    given = operands(shapes)
    stride = 2 if "stride=2" in program else 1
    assert XTC is not None
    found, theirs = run_xtc(XTC, XtcRequest(operator, schedule, backend, stride), given)
    assert theirs is not None, found.error
    subject = subject_of(open_program(program))
    made = parse_schedule(json.dumps(schedule), subject.kernel)
    assert not subject.reasons(made)
    with load(bytes(compile_with(subject, made).data)) as session:
        ours = np.asarray(session["main"](*given))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@needs_xtc
@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_time_of_one_text_is_within_the_noise_or_better(backend: str):
    """On one thread, the best of interleaved rounds; 25 % are for what else the machine does."""
    assert XTC is not None
    program, shapes = "matmul:128x256x192", [(128, 192), (192, 256)]
    subject = subject_of(open_program(program))
    made = parse_schedule(json.dumps(PRODUCT), subject.kernel)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(3):
        ours.append(evaluate(subject, made, threads=1, repeat=3).seconds)
        found, _ = run_xtc(XTC, XtcRequest("matmul", PRODUCT, backend, repeat=3), operands(shapes))
        assert found.seconds, found.error
        theirs.append(min(found.seconds))
    assert min(ours) <= 1.25 * min(theirs), (ours, theirs)


@needs_xtc
@pytest.mark.slow
@pytest.mark.parametrize("module, backend", [
    ("xtc_search", "mlir"), ("xtc_search", "tvm"), ("metaschedule_search", ""),
])
@pytest.mark.parametrize("kernel", ["matmul:16x32x8", "conv2d:1x8x8x3,3x3x3x16:stride=2"])
def test_searches_of_the_peers_have_right_results(kernel: str, module: str, backend: str):
    assert XTC is not None
    found = search_peer(kernel, XTC, f"benchmarks.{module}", 2, backend)
    assert found.heuristic < 1 and len(found.trials) == 2, found
    assert not found.error, found
