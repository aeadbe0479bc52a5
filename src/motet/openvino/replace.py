"""Replaces the parts of a model that Motet can compile by calls of compiled functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from motet.artifact.reader import Artifact
from motet.errors import MotetError
from motet.openvino.call import MotetCall, calls_in
from motet.openvino.cut import CONVERSIONS, CutModel
from motet.openvino.operations import Left, Obstacle, Operations, Subgraph, bodies_of
from motet.openvino.report import Replaced, Report
from motet.openvino.runner import Runner

_HALVED = 4  # parts of a model
_ROUNDS = 16  # of refused operations, after which a part that still fails stays with OpenVINO


@dataclass(frozen=True)
class Lowering:
    """How parts are compiled. `obstacle` is why an operation cannot be, `compile` compiles a model of one part and
    raises MotetError. Parts have at least `smallest` working operations. `divided` are the operations whose bodies are
    divided where they stay with OpenVINO; TensorIterator is none of them: OpenVINO replaces many by its recurrences."""

    obstacle: Obstacle
    compile: Callable[[Any], Artifact]
    smallest: int = 4
    divided: tuple[str, ...] = ("If", "Loop")


@dataclass
class Replacement:
    """The calls in a model, the report, and how many parts were halved to find what cannot be compiled. `taken` are the
    names of calls that the model had before."""

    runners: list[Runner] = field(default_factory=list[Runner])
    report: Report = field(default_factory=Report)
    halved: int = 0
    taken: frozenset[str] = frozenset()

    def new_name(self) -> str:
        """The name of the next call."""
        used = self.taken | {part.name for part in self.report.replaced}
        return next(name for number in count() if (name := f"motet{number}") not in used)


def replace_parts(model: Any, lowering: Lowering) -> Replacement:
    """Replace parts of `model` in place. An operation for which compiling fails is listed in the report, and its part
    is divided again without it. So are bodies of operations that stay with OpenVINO."""
    taken = frozenset(part for call in calls_in(model) for part in (call.part, call.get_friendly_name()))
    made = Replacement(taken=taken)
    made.report.left = _replace_in(model, lowering, made)
    return made


def _replace_in(model: Any, lowering: Lowering, made: Replacement) -> list[Left]:
    """Replace parts of `model`, or of a body. Returns what stays with OpenVINO."""
    refused: dict[str, str] = {}

    def obstacle(node: Any) -> str:
        return refused.get(node.get_name()) or lowering.obstacle(node)

    for round in range(_ROUNDS):
        parts, left = Operations(model, obstacle).parts(lowering.smallest)
        failed: dict[str, str] = {}
        for part in parts:
            failed |= _replace(part, lowering, made, alone=round == _ROUNDS - 1)
        refused |= failed
        if not failed:
            break
    else:
        left = Operations(model, obstacle).parts(lowering.smallest)[1]
    nodes = {node.get_friendly_name(): node for node in model.get_ordered_ops()}
    left = [replace(each, between=_between(nodes[each.name])) for each in left if each.type != MotetCall.__name__]
    for node in model.get_ordered_ops():
        if node.get_type_name() in lowering.divided:
            for body in bodies_of(node):
                left += _replace_in(body, lowering, made)
    return left


def _between(node: Any) -> str:
    """The calls that compute what `node` reads, and those that read its results: `motet0 → motet1`."""
    sides = [_near(node, _sources), _near(node, _readers)]
    names = [sorted({each.get_friendly_name() for each in side if isinstance(each, MotetCall)}) for side in sides]
    return " → ".join(map(", ".join, names)).strip() if any(names) else ""


def _near(node: Any, neighbours: Callable[[Any], list[Any]]) -> list[Any]:
    """The neighbours, and those behind the conversions between calls and OpenVINO's operations."""
    near = neighbours(node)
    return near + [far for each in near if each.get_type_name() in CONVERSIONS for far in neighbours(each)]


def _sources(node: Any) -> list[Any]:
    return [value.get_node() for value in node.input_values()]


def _readers(node: Any) -> list[Any]:
    return [read.get_node() for value in node.outputs() for read in value.get_target_inputs()]


def _replace(part: Subgraph, lowering: Lowering, made: Replacement, *, alone: bool) -> Mapping[str, str]:
    """Replace `part`. Returns why not, for each operation to leave out."""
    name = made.new_name()
    cut = CutModel(part, name)
    try:
        artifact = lowering.compile(cut.model)
    except MotetError as error:
        cut.undo()
        message = str(error).split("\n")[0]
        return dict.fromkeys(_named(part.nodes), message) if alone else _culprits(part, message, lowering, made)
    runner = Runner(artifact)
    call = MotetCall(cut.passed_inputs(), runner, name)
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


def _culprits(part: Subgraph, message: str, lowering: Lowering, made: Replacement) -> Mapping[str, str]:
    """The operations that an error names, or that contain what it names. If it names none, the first that cannot be
    compiled, which takes many compilations; after `_HALVED` of these, all of the part."""
    named = [node for node in part.nodes if any(_names(message, name) for name in _contained(node))]
    if not named and made.halved < _HALVED:
        made.halved += 1
        named = [part.nodes[_first_failing(part, lowering)]]
    return dict.fromkeys(_named(named or part.nodes), message)


def _named(nodes: Sequence[Any]) -> list[str]:
    return [node.get_name() for node in nodes]


def _first_failing(part: Subgraph, lowering: Lowering) -> int:
    """The number of the operation with which the part's beginning first fails to compile, found by halving."""
    fine, failing = 0, len(part.nodes)
    while failing - fine > 1:
        middle = (fine + failing) // 2
        cut = CutModel(Subgraph(part.nodes[:middle], part.work, part.constants), "beginning")
        try:
            lowering.compile(cut.model)
            fine = middle
        except MotetError:
            failing = middle
        finally:
            cut.undo()
    return failing - 1


def _contained(node: Any) -> Iterator[str]:
    """The names of an operation and of those in its bodies."""
    yield node.get_friendly_name()
    for body in bodies_of(node):
        for inner in body.get_ordered_ops():
            yield from _contained(inner)


def _names(message: str, name: str) -> bool:
    return re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w/-])", message) is not None
