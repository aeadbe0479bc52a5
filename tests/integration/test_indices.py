"""An index that a call decides, and that is outside of its tensor, is an error of the call, whatever it is."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tests.integration.wrong_indices import KINDS

import motet
from motet.errors import CallError


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_indices_are_errors_of_the_call(kind: str) -> None:
    """In a process of its own, which has to live."""
    command = [sys.executable, "-m", "tests.integration.wrong_indices", kind]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("done\n", 0), run.stdout + run.stderr


def test_assertions_are_errors_of_the_call() -> None:
    """The wheel's determinant of a matrix asserts that its pivots are not zero."""
    from onnx import TensorProto, helper

    node = helper.make_node("Det", ["x"], ["y"], "the volume")
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "n"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    model = helper.make_model(helper.make_graph([node], "g", [value], [result]), ir_version=9)
    with motet.load(motet.compile(model.SerializeToString())) as session:
        for _ in range(4):
            with pytest.raises(CallError, match=r'main: Det "the volume": unimplemented: determinants'):
                session.main(np.zeros((3, 3), np.float32))
            assert float(session.main(2 * np.eye(5, dtype=np.float32))) == 32
