"""The operators that the fuzzer knows: how each is drawn, and what it means."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
from tests.fuzz.tracked import Invalid, Tracked

if TYPE_CHECKING:
    from tests.fuzz.drawing import Drawer

Attributes = Mapping[str, Any]
Operands = Sequence["Tracked | None"]
Evaluate = Callable[[Attributes, Operands], Sequence[Tracked]]
Draw = Callable[["Drawer"], None]

MEANINGS: dict[str, Evaluate] = {}
DRAWS: dict[str, list[tuple[str, Draw]]] = {}


class Rejected(Exception):  # no mistake: the drawer tries something else
    """A drawn operator that does not fit what there is."""


def meaning(*names: str) -> Callable[[Evaluate], Evaluate]:
    """The reference of operators."""

    def register(function: Evaluate) -> Evaluate:
        for name in names:
            MEANINGS[name] = function
        return function

    return register


def drawn(family: str, *names: str) -> Callable[[Draw], Draw]:
    """A function that adds one of `names` to a graph, or raises Rejected."""

    def register(function: Draw) -> Draw:
        DRAWS.setdefault(family, []).append((" ".join(names), function))
        return function

    return register


def evaluate(op: str, attributes: Attributes, operands: Operands) -> Sequence[Tracked]:
    """The results of an operator; Invalid where its definition does not allow the operands."""
    try:
        return MEANINGS[op](attributes, operands)
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise Invalid(f"{op}: {error}") from error


def given(operand: Tracked | None) -> Tracked:
    """An operand that must be there."""
    if operand is None:
        raise Invalid("an operand is missing")
    return operand


_ELEMENTS = {
    "f32": "float", "f16": "float16", "bf16": "bfloat16", "f64": "double", "bool": "bool", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip


@functools.lru_cache(None)
def accepts(op: str, opset: int, dtypes: tuple[str, ...]) -> bool:
    """Whether ONNX has the operator for operands of these types, '' for one that is left out."""
    try:
        schema = onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return False
    for number, dtype in enumerate(dtypes):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)]
        if dtype and f"tensor({_ELEMENTS[dtype]})" not in formal.types:
            return False
    return True
