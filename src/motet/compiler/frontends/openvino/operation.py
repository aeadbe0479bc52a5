"""What a rule knows about one operator of an OpenVINO model: attributes, types, extents, and constant inputs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

FOLD_ELEMENTS = 1 << 16  # of a constant subgraph that is evaluated when reading
_EVALUATED_DEPTH = 64

# Operators that OpenVINO evaluates on devices only.
_EVALUATED_HERE: dict[str, Callable[..., np.ndarray]] = {
    "BitwiseNot": np.invert, "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
}

# OpenVINO's element types, as numpy's. Types that are missing have no lowering.
DTYPES: dict[str, np.dtype[Any]] = {
    "f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "boolean": np.dtype(np.bool_),
    **{f"{sign}{bits}": np.dtype(f"{sign}{bits // 8}") for sign in "iu" for bits in (8, 16, 32, 64)},
    "u4": np.dtype(ml_dtypes.uint4), "i4": np.dtype(ml_dtypes.int4),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


class NoLowering(Exception):
    """An operator, in the form that it has in a model, without a lowering; the text tells which form."""


@dataclass
class OpenvinoOperation:
    """One operator. `inputs` are the names of its operands in the ONNX graph; an empty name is an absent operand."""

    node: Any
    inputs: list[str] = field(default_factory=list[str])

    @property
    def kind(self) -> str:
        return self.node.get_type_name()

    @property
    def name(self) -> str:
        return self.node.get_friendly_name()

    @property
    def version(self) -> int:
        """The number of the operator set that introduced this form; 0 for an operator outside the operator sets."""
        text = str(self.node.get_type_info().version_id).removeprefix("opset")
        return int(text) if text.isdigit() else 0

    @property
    def attributes(self) -> dict[str, Any]:
        return self.node.get_attributes()

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    @property
    def count(self) -> int:
        return self.node.get_input_size()

    @property
    def results(self) -> int:
        return self.node.get_output_size()

    def has(self, place: int) -> bool:
        return place < self.count

    def is_read(self, place: int) -> bool:
        """Whether anything reads the result `place`."""
        return bool(self.node.output(place).get_target_inputs())

    def extents(self, place: int) -> list[int | None] | None:
        """The extents of an operand, None for dynamic ones; None if its rank is unknown."""
        return extents_of(self.node.input_value(place))

    def shape(self, place: int) -> list[int]:
        """The extents of an operand. Raises NoLowering if one is dynamic."""
        found = self.extents(place)
        if found is None or None in found:
            raise NoLowering(f"operand {place} has dynamic extents; expected known ones")
        return [extent for extent in found if extent is not None]

    def rank(self, place: int) -> int:
        found = self.extents(place)
        if found is None:
            raise NoLowering(f"operand {place} has a dynamic rank; expected a known one")
        return len(found)

    def result_extents(self, place: int = 0) -> list[int | None] | None:
        return extents_of(self.node.output(place))

    def result_shape(self, place: int = 0) -> list[int]:
        found = self.result_extents(place)
        if found is None or None in found:
            raise NoLowering("its result has dynamic extents; expected known ones")
        return [extent for extent in found if extent is not None]

    def dtype(self, place: int) -> np.dtype[Any]:
        return dtype_of(self.node.input_value(place))

    def result_dtype(self, place: int = 0) -> np.dtype[Any]:
        return dtype_of(self.node.output(place))

    def value(self, place: int) -> np.ndarray | None:
        """The value of an operand that follows from constants and known extents; None for another."""
        return constant_value(self.node.input_value(place))

    def known(self, place: int, what: str) -> np.ndarray:
        """The value of a constant operand, called `what`. Raises NoLowering for another."""
        found = self.value(place)
        if found is None:
            raise NoLowering(f"its {what} are computed in a call; expected constants")
        return found

    def numbers(self, place: int, what: str) -> list[int]:
        """The elements of a constant operand of integers."""
        return [int(each) for each in self.known(place, what).reshape(-1)]

    def axes(self, place: int, rank: int, what: str = "axes") -> list[int]:
        """Constant axes, counted from the first."""
        return [axis % rank if rank else 0 for axis in self.numbers(place, what)]


def extents_of(output: Any) -> list[int | None] | None:
    shape = output.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return [dim.get_length() if dim.is_static else None for dim in shape]


def dtype_of(output: Any) -> np.dtype[Any]:
    name = output.get_element_type().get_type_name()
    if name not in DTYPES:
        raise NoLowering(f"elements of type {name}; expected numbers of a type that Motet has")
    return DTYPES[name]


def constant_data(node: Any) -> np.ndarray:
    """The data of a Constant, without a copy where its elements are stored as numpy's."""
    dtype, shape = dtype_of(node.output(0)), tuple(node.get_output_shape(0))
    data = node.data
    if dtype.name in ("int4", "uint4"):
        return _unpacked(data, dtype, shape)
    if data.dtype != dtype:
        data = data.view(dtype)
    return data.reshape(shape)


def _unpacked(data: np.ndarray, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Elements of four bits, the first of each byte in its low half, with a byte for each."""
    packed = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    halves = np.empty(2 * packed.size, np.uint8)
    halves[0::2], halves[1::2] = packed & 15, packed >> 4
    flat = halves[: int(np.prod(shape, dtype=np.int64))]
    if dtype.name == "int4":
        flat = ((flat ^ 8).astype(np.int16) - 8).astype(np.int8)
    return flat.astype(dtype).reshape(shape)


def constant_value(output: Any, depth: int = 0) -> np.ndarray | None:
    """The value of an output that follows from constants and known extents, evaluated by OpenVINO; None for another,
    and for one of many elements."""
    node = output.get_node()
    kind = node.get_type_name()
    if kind == "Constant":
        return constant_data(node)
    shape = extents_of(output)
    if shape is None or None in shape or depth > _EVALUATED_DEPTH or kind in ("Parameter", "ReadValue"):
        return None
    if int(np.prod([extent or 0 for extent in shape], dtype=np.int64)) > FOLD_ELEMENTS:
        return None
    if kind == "ShapeOf":
        given = extents_of(node.input_value(0))
        return None if given is None or None in given else np.array(given, dtype_of(output))
    return _evaluated(node, output, depth)


def _evaluated(node: Any, output: Any, depth: int) -> np.ndarray | None:
    values: list[np.ndarray] = []
    for each in node.input_values():
        value = constant_value(each, depth + 1)
        if value is None or value.size > FOLD_ELEMENTS:
            return None
        values.append(value)
    found = evaluate(node, values) if values else None
    return None if found is None else found[output.get_index()]


def evaluate(node: Any, values: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """The results of an operator on arrays, as OpenVINO computes them; None where it does not, and for types that numpy
    lacks."""
    outputs = node.outputs()
    if (function := _EVALUATED_HERE.get(node.get_type_name())) is not None:
        return [function(*values)]
    if any(value.dtype.isbuiltin != 1 for value in values) or any(dtype_of(each).isbuiltin != 1 for each in outputs):
        return None
    tensor = importlib.import_module("openvino").Tensor  # loaded already: `node` is its object
    results = [tensor(each.get_element_type(), each.get_shape() if each.get_partial_shape().is_static else [0])
               for each in outputs]
    try:
        if not node.evaluate(results, [tensor(np.ascontiguousarray(value).reshape(value.shape)) for value in values]):
            return None
    except (RuntimeError, NotImplementedError):
        return None  # OpenVINO evaluates it on devices only
    return [np.array(result.data) for result in results]
