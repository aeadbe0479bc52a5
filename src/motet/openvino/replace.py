"""Replaces the parts of a model that Motet can compile by calls of compiled functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from motet.artifact.reader import Artifact
from motet.errors import CompileError, WorkerCrash
from motet.openvino.call import MotetCall
from motet.openvino.cut import CutModel
from motet.openvino.operations import Obstacle, Operations, Subgraph
from motet.openvino.report import Replaced, Report
from motet.openvino.runner import Runner

_ROUNDS = 16  # of refused operations, after which a part that still fails stays with OpenVINO


@dataclass(frozen=True)
class Lowering:
    """How parts are compiled. `obstacle` is why an operation cannot be, `compile` compiles a model of one part and
    raises CompileError or WorkerCrash. Parts have at least `smallest` working operations."""

    obstacle: Obstacle
    compile: Callable[[Any], Artifact]
    smallest: int = 4


@dataclass
class Replacement:
    """The calls in a model, and the report."""

    runners: list[Runner] = field(default_factory=list[Runner])
    report: Report = field(default_factory=Report)


def replace_parts(model: Any, lowering: Lowering) -> Replacement:
    """Replace parts of `model` in place. An operation for which compiling fails is named in the report, and its part is
    divided again without it."""
    made = Replacement()
    refused: dict[str, str] = {}

    def obstacle(node: Any) -> str:
        return refused.get(node.get_name()) or lowering.obstacle(node)

    for round in range(_ROUNDS):
        graph = Operations(model, obstacle)
        parts, left = graph.parts(lowering.smallest)
        failed: dict[str, str] = {}
        for part in parts:
            failed |= _replace(part, lowering, made, alone=round == _ROUNDS - 1)
        refused |= failed
        if not failed:
            made.report.left = [each for each in left if each.type != MotetCall.__name__]
            return made
    graph = Operations(model, obstacle)
    made.report.left = [each for each in graph.parts(lowering.smallest)[1] if each.type != MotetCall.__name__]
    return made


def _replace(part: Subgraph, lowering: Lowering, made: Replacement, *, alone: bool) -> Mapping[str, str]:
    """Replace `part`. Returns why not, for each operation to leave out."""
    name = f"motet{len(made.runners)}"
    cut = CutModel(part, name)
    try:
        artifact = lowering.compile(cut.model)
    except (CompileError, WorkerCrash) as error:
        cut.undo()
        return _culprits(part, str(error).split("\n")[0], alone)
    runner = Runner(artifact)
    call = MotetCall(cut.passed_inputs(), runner)
    call.set_friendly_name(name)
    cut.replace(call.outputs())
    made.runners.append(runner)
    types = Counter(node.get_type_name() for node in part.nodes)
    made.report.replaced.append(Replaced(name, types, _interface(call)))
    return {}


def _interface(call: Any) -> str:
    """`f32[?,64], i32[?] → f32[?,8]`."""
    sides = (call.input_values(), call.outputs())
    return " → ".join(", ".join(
        f"{value.get_element_type().get_type_name()}{value.get_partial_shape()}" for value in side
    ) for side in sides)


def _culprits(part: Subgraph, message: str, whole: bool) -> Mapping[str, str]:
    """The operations that an error names; all of the part if it names none."""
    named = [] if whole else [node for node in part.nodes if _names(message, node.get_friendly_name())]
    return {node.get_name(): message for node in (named or part.nodes)}


def _names(message: str, name: str) -> bool:
    return re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w/-])", message) is not None
