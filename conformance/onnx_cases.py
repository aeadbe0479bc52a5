"""The cases of `onnx.backend.test`: single nodes, which the package generates, and models, whose files it holds.

A result must have the expected type and shape, and values within the suite's tolerance. What draws random numbers is
held to type, shape and the values it can give, since no generator is prescribed. Inputs that are sequences, of which
a model does not say how long they are, are compiled for the lengths and shapes that the case has: option `sequences`.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import motet
from conformance.comparing import compare
from conformance.compiling import compile_here
from conformance.results import Unavailable, Wrong
from motet.artifact.dtypes import spelling

NODE = "onnx-node"
RANDOM = {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
_RELATIVE, _ABSOLUTE = 1e-3, 1e-7  # the suite's own, where a case names no others


@dataclass(frozen=True)
class Case:
    """A model, and sets of inputs with the results that they must give."""

    model: onnx.ModelProto
    data: list[tuple[list[Any], list[Any]]]
    relative: float
    absolute: float


def cases(suite: str) -> list[str]:
    """The names of the cases of `onnx-node`, `onnx-simple`, `onnx-pytorch-operator` or `onnx-pytorch-converted`."""
    return sorted(_node_cases() if suite == NODE else (folder.name for folder in _folders(suite)))


def check(suite: str, case: str) -> str:
    """Compiles and runs a case. Returns a note where results are further off than the type's precision explains."""
    loaded = load(suite, case)
    notes: list[str] = []
    source, sequences, session = loaded.model.SerializeToString(), None, None
    for inputs, expected in loaded.data:
        if session is None or sequences != _sequences(loaded.model, inputs):
            sequences = _sequences(loaded.model, inputs)
            session = motet.load(compile_here(source, case, "onnx", sequences), threads=1)
        results = session(*(tensor for value in inputs for tensor in _tensors(value)))
        results = list(results) if isinstance(results, tuple) else [] if results is None else [results]
        notes.append(judge(loaded, inputs, _in_sequences(results, expected), expected))
    return next(filter(None, notes), "")


def _sequences(model: onnx.ModelProto, inputs: Sequence[Any]) -> str:
    """The option that says what the inputs that are sequences, or absent, consist of."""
    held = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in held]
    said: list[str] = []
    for name, value in zip(names, inputs, strict=False):
        if value is None:
            said.append(f"{name}=none")
        elif isinstance(value, list):
            said.append(f"{name}=" + ",".join("x".join([*map(str, one.shape), spelling(one.dtype)]) for one in value))
    return ";".join(said)


def _tensors(value: Any) -> list[Any]:
    """What a call gives for an input: nothing for what is absent, its elements for a sequence."""
    return [] if value is None else value if isinstance(value, list) else [value]


def _in_sequences(results: Sequence[Any], expected: Sequence[Any]) -> list[Any]:
    """Results, of which those of a sequence follow one another, as the lists that are expected; all as they are where
    their number does not fit."""
    lengths = [len(value) if isinstance(value, list) else 1 for value in expected]
    if sum(lengths) != len(results):
        return list(results)
    rest = iter(results)
    return [
        [next(rest) for _ in range(length)] if isinstance(value, list) else next(rest)
        for value, length in zip(expected, lengths, strict=True)
    ]


def judge(case: Case, inputs: Sequence[Any], results: Sequence[Any], expected: Sequence[Any]) -> str:
    """`compare`, or where the model draws random numbers, whether results can be drawn. Raises Wrong."""
    if not _is_random(case.model.graph, inputs):
        return compare(results, expected, case.relative, case.absolute)
    if len(results) != len(expected):
        raise Wrong(f"{len(results)} results, expected {len(expected)}")
    for index, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        if (result.dtype, result.shape) != (wanted.dtype, wanted.shape):
            raise Wrong(f"result {index}: {result.dtype} {result.shape}, expected {wanted.dtype} {wanted.shape}")
        strange = ~np.isin(result, [*np.unique(wanted), *_drawable(case.model.graph, inputs)])
        if strange.any():
            raise Wrong(f"result {index}: {result[strange][0]} cannot be drawn")
    return ""


def load(suite: str, case: str) -> Case:
    """A case's model and data."""
    if suite == NODE:
        found = _node_cases()[case]
        return Case(found.model, [_given(found.model, *data) for data in found.data_sets], found.rtol, found.atol)
    folder = _data() / suite.removeprefix("onnx-") / case
    model = onnx.load(folder / "model.onnx")
    tolerances = json.loads((folder / "data.json").read_text()) if (folder / "data.json").exists() else {}
    data = [
        _given(model, list(_read(one, "input", model.graph.input)), list(_read(one, "output", model.graph.output)))
        for one in sorted(folder.glob("test_data_set_*"))
    ]
    return Case(model, data, tolerances.get("rtol", _RELATIVE), tolerances.get("atol", _ABSOLUTE))


@functools.cache
def _node_cases() -> dict[str, Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflows and divisions by zero that the cases are about
        return {case.name: case for case in load_model_tests(kind="node")}


def _data() -> Path:
    from onnx.backend.test.loader import DATA_DIR

    return Path(DATA_DIR)


def _folders(suite: str) -> list[Path]:
    found = [model.parent for model in (_data() / suite.removeprefix("onnx-")).glob("*/model.onnx")]
    if not found:
        raise Unavailable(f"onnx {onnx.__version__} holds no such models; install another release of onnx")
    return found


def _given(model: onnx.ModelProto, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Inputs and results as arrays, lists of arrays or None. An input that the model holds a value for is left out."""
    held = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input]
    kept = [value for name, value in zip(names, inputs, strict=False) if name not in held]
    return [_array(value) for value in kept], [_array(value) for value in outputs]


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if value is None:
        return None
    return [_array(one) for one in value] if isinstance(value, (list, tuple)) else np.asarray(value)


def _read(folder: Path, kind: str, values: Sequence[onnx.ValueInfoProto]) -> Iterator[Any]:
    """The values of `input_0.pb`, … or `output_0.pb`, …, of the types that the model declares."""
    for index, value in enumerate(values):
        path = folder / f"{kind}_{index}.pb"
        if not path.exists():
            return
        match value.type.WhichOneof("value"):
            case "sequence_type":
                yield numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
            case "optional_type":
                yield numpy_helper.to_optional(onnx.OptionalProto.FromString(path.read_bytes()))
            case _:
                yield onnx.TensorProto.FromString(path.read_bytes())


def _is_random(graph: onnx.GraphProto, inputs: Sequence[Any]) -> bool:
    return any(node.op_type in RANDOM for node in graph.node) or _dropout_ratio(graph, inputs) > 0.0


def _drawable(graph: onnx.GraphProto, inputs: Sequence[Any]) -> list[Any]:
    """The values that a random model's results may have."""
    ratio = _dropout_ratio(graph, inputs)
    if not ratio:
        return [0, 1]
    return [0, 1, *np.unique(inputs[0] * inputs[0].dtype.type(1 / (1 - ratio)))]


def _dropout_ratio(graph: onnx.GraphProto, inputs: Sequence[Any]) -> float:
    """The share of elements that a Dropout in training drops; 0 where there is none."""
    values = dict(zip((value.name for value in graph.input), inputs, strict=False))
    for node in graph.node:
        if node.op_type == "Dropout" and len(node.input) > 2 and bool(values.get(node.input[2], False)):
            ratio = values.get(node.input[1])
            return 0.5 if ratio is None else float(ratio)
    return 0.0
