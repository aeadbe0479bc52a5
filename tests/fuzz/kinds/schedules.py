"""Programs whose kernels have random legal schedules of the lab's spaces: the results do not change."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz import calls
from tests.fuzz.as_onnx import onnx_model
from tests.fuzz.graph import Graph
from tests.fuzz.graph import show as show_graph
from tests.fuzz.judge import fault
from tests.fuzz.kinds.attempts import draw_defined, judged
from tests.fuzz.reference import calculate
from tests.fuzz.tracked import Invalid, Tracked
from tests.fuzz.trial import Outcome, Say

from motet.lab.derivation import derived_space
from motet.lab.subject import KernelSubject, compile_with, open_program, subjects_of
from motet.runtime import load

_POINTS = 3  # schedules of a program
_BUSY = frozenset((
    "AveragePool", "Conv", "ConvTranspose", "CumSum", "Einsum", "Gemm", "LayerNormalization", "LogSoftmax", "MatMul",
    "MatMulInteger", "MaxPool", "QLinearMatMul", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceSum", "Softmax",
    "Transpose",
))  # fmt: skip


def draw(seed: int) -> Graph:
    """A graph with an operator whose kernel has a choice. Raises Invalid where there is none in many."""
    rng = random.Random(f"schedules {seed}")
    return draw_defined(seed * 200, 200, lambda: rng.choice((18, 20, 22)), 0.2,
                        lambda graph: any(node.op in _BUSY for node in graph.nodes))  # fmt: skip


def attempt(seed: int, say: Say) -> Outcome:
    outcome = Outcome(language="onnx")
    try:
        graph = draw(seed)
    except Invalid:
        return outcome
    rng = random.Random(f"points {seed}")
    feeds = calls.feeds(graph, 0, graph.symbols)
    known = calculate(graph, feeds)
    with tempfile.TemporaryDirectory(prefix="motet-fuzz-") as folder, judged(outcome):
        file = Path(folder) / "fuzz.onnx"
        file.write_bytes(onnx_model([graph]))
        say(f"compile [{seed}]")
        subjects = subjects_of(open_program(str(file)))
        for subject, schedule in _schedules(subjects, rng):
            say(f"call {subject.text(schedule)[:200]} [{seed}]")
            outcome.calls += 1
            with load(compile_with(subject, schedule)) as session:
                text = _fault(session(*feeds.values()), [known[name] for name in graph.results])
            if text:
                outcome.failed("wrong", f"{subject.listed.name} with {subject.text(schedule)}: {text}")
    return outcome


def _schedules(subjects: list[KernelSubject], rng: random.Random) -> Iterator[tuple[KernelSubject, Any]]:
    for _ in range(_POINTS if subjects else 0):
        subject = rng.choice(subjects[:3])
        space = derived_space(subject)
        point = space.sample(rng)
        schedule = space.schedule(point) if point is not None else None
        if schedule is not None and not subject.reasons(schedule):
            yield subject, schedule


def _fault(found: Any, wanted: list[Tracked]) -> str:
    results = found if isinstance(found, tuple) else (found,)
    return fault([np.asarray(each) for each in results], wanted)


def show(seed: int) -> str:
    return show_graph(draw(seed))
