"""Recurrent operators of ONNX whose first states a caller gives, with a batch and steps that only a call knows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import motet
from motet.errors import CallError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FEATURES, SIZE = 6, 5
RANDOM = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32) * 0.5


def recurrent(op: str, steps: int | str, state_batch: str) -> onnx.ModelProto:
    """One operator in the direction forward; its results are all states, and the last ones."""
    states = ["h", "c"] if op == "LSTM" else ["h"]
    weights = {"w": floats(1, GATES[op] * SIZE, FEATURES), "r": floats(1, GATES[op] * SIZE, SIZE)}
    results = ["y", *(f"last_{name}" for name in states)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w", "r", "", "", *states], results, "cell", hidden_size=SIZE)], "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, "b", FEATURES]),
         *(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, state_batch, SIZE]) for name in states)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("steps", ["t", 4])
@pytest.mark.parametrize("state_batch", ["b", "m"])
def test_states_have_the_batch_of_the_sequences(op: str, steps: int | str, state_batch: str) -> None:
    proto = recurrent(op, steps, state_batch)
    session = motet.load(motet.compile(proto), threads=1)
    reference = ReferenceEvaluator(proto)
    for time, batch in ((4, 3), (4 if steps == 4 else 7, 1)):
        given = {"x": floats(time, batch, FEATURES), "h": floats(1, batch, SIZE)}
        given |= {"c": floats(1, batch, SIZE)} if op == "LSTM" else {}
        expected = reference.run(None, given)
        for own, other in zip(session(*given.values()), expected, strict=True):
            np.testing.assert_allclose(own, np.asarray(other), atol=2e-6)


@pytest.mark.parametrize("op", GATES)
def test_states_of_another_batch_are_refused(op: str) -> None:
    session = motet.load(motet.compile(recurrent(op, "t", "m")), threads=1)
    given = [floats(4, 3, FEATURES), *[floats(1, 2, SIZE)] * (2 if op == "LSTM" else 1)]
    with pytest.raises(CallError, match='"cell": axis 1 of input 5 and axis 1 of input 0 must be equal: 2 and 3'):
        session(*given)
