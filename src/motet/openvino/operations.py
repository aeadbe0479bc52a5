"""An OpenVINO model as numbered operations: which of them Motet can compile, and the parts to compile.

Constants, and operations on constants alone, are not numbered: a part that reads them takes them with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from motet.graphs.order import bit_set, members
from motet.graphs.parts import partition

# Of an operation: why Motet cannot compile it; empty if it can.
Obstacle = Callable[[Any], str]

_INTERFACE = ("Parameter", "Result")
_STATES = ("ReadValue", "Assign")
# Operations that rename elements, or change their type: alone, they are no work for a compiled function.
_MOVES = {"Convert", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "ShapeOf", "Broadcast", "StridedSlice", "Slice",
          "Concat", "Split", "VariadicSplit", "Gather", "Tile"}  # fmt: skip
_BODIES = {"If": ("get_then_body", "get_else_body"), "Loop": ("get_function",), "TensorIterator": ("get_function",)}
# Element types that values have between operations; others cannot be passed from OpenVINO to a compiled function.
_TYPES = {"f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "boolean"}


@dataclass(frozen=True)
class Left:
    """An operation that stays with OpenVINO. `between` are the calls of Motet whose results it reads, and those that
    read its results: `motet0 → motet1`; empty if there are none."""

    name: str
    type: str
    reason: str
    between: str = ""

    def __str__(self) -> str:
        return f"{self.type} {self.name}: {self.reason}"


@dataclass(frozen=True)
class Subgraph:
    """Connected operations to be replaced by one, in an executable order. `work` is the number of those that do more
    than move elements. `constants` are the model's operations that become a part of what reads them."""

    nodes: tuple[Any, ...]
    work: int
    constants: frozenset[Any]


class Operations:
    """The operations of `model`. `obstacle` is asked once for each."""

    def __init__(self, model: Any, obstacle: Obstacle) -> None:
        self._obstacles: dict[int, str] = {}
        self.nodes: list[Any] = []
        self._producers: list[int] = []
        numbers: dict[int, int] = {}
        constant: set[Any] = set()
        for node in model.get_ordered_ops():
            handle, kind = identity(node), node.get_type_name()
            sources = [identity(value.get_node()) for value in node.input_values()]
            folds = sources and constant.issuperset(sources) and kind not in _STATES and not obstacle(node)
            if kind == "Constant" or folds:
                constant.add(handle)
                continue
            numbers[handle] = len(self.nodes)
            self._producers.append(bit_set(numbers[source] for source in sources if source in numbers))
            reason = "" if kind in _INTERFACE else _why_not(node, kind, obstacle)
            if reason or kind in _INTERFACE:
                self._obstacles[numbers[handle]] = reason
            self.nodes.append(node)
        self._constants = frozenset(constant)

    def parts(self, smallest: int) -> tuple[list[Subgraph], list[Left]]:
        """The parts of at least `smallest` working operations, and the operations outside them."""
        supported = bit_set(number for number in range(len(self.nodes)) if number not in self._obstacles)
        found: list[Subgraph] = []
        left = {number: reason for number, reason in self._obstacles.items() if reason}
        for part in partition(self._producers, supported):
            numbers = list(members(part))
            nodes = tuple(self.nodes[number] for number in numbers)
            work = sum(node.get_type_name() not in _MOVES for node in nodes)
            if work >= smallest and any(self._producers[number] for number in numbers):
                found.append(Subgraph(nodes, work, self._constants))
                continue
            text = f"in a part with {work} working operation{'' if work == 1 else 's'}; expected at least {smallest}"
            left.update(dict.fromkeys(numbers, text))
        named = [(self.nodes[number], reason) for number, reason in sorted(left.items())]
        return found, [Left(node.get_friendly_name(), node.get_type_name(), reason) for node, reason in named]


def identity(node: Any) -> Any:
    """What is equal for two Python objects of one operation of a model, and unique in the model."""
    return node.get_name()


def bodies_of(node: Any) -> list[Any]:
    """The models that an operation runs."""
    return [getattr(node, method)() for method in _BODIES.get(node.get_type_name(), ())]


def _why_not(node: Any, kind: str, obstacle: Obstacle) -> str:
    if kind in _STATES:
        return "a state, which OpenVINO keeps"
    for value in (*node.input_values(), *node.outputs()):
        if value.get_element_type().get_type_name() not in _TYPES:
            return f"a tensor of type {value.get_element_type().get_type_name()}"
    return obstacle(node)
