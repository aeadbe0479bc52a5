"""Other libraries compute what the operators mean, and are measured."""

import importlib.util
from typing import Any

import numpy as np
import pytest

from motet.compiler import service
from motet.compiler.service import CompileRequest
from motet.errors import OptionError
from motet.lab.operators import operator_program, parse_operator
from motet.lab.peers import PEERS, measure_peers, operand_shapes, peer_function, peer_operands
from motet.runtime.session import load

OPERATORS = [
    "matmul:5x7x3", "batch_matmul:2x5x7x3", "matmul_relu:5x7x3", "relu:3x9", "add:4x5", "sum:6x7x5", "softmax:7x11",
    "transpose:3x4x5:perm=1,2,0", "transpose:3x4", "layernorm:5x13", "conv2d:1x9x8x3,3x3x3x4:stride=2:pad=1",
    "conv2d:2x7x7x3,2x3x3x5", "depthwise_conv2d:1x8x7x5,3x3x5:pad=1",
]


@pytest.mark.parametrize("text", OPERATORS)
def test_libraries_agree_with_motet(text: str):
    call = parse_operator(text)
    random = np.random.default_rng(3)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in operand_shapes(call)]
    artifact = service.compile(CompileRequest(operator_program(text).encode(), text))
    with load(bytes(artifact.data)) as session:
        ours = np.asarray(session["main"](*arrays))
    compared = 0
    for name in PEERS:
        if importlib.util.find_spec(name) is None or (function := peer_function(name, call)) is None:
            continue
        theirs: Any = function(*peer_operands(name, arrays))
        np.testing.assert_allclose(np.asarray(theirs), ours, rtol=1e-4, atol=1e-5)
        compared += 1
    if not compared:
        pytest.skip("torch is not installed")


def test_a_library_is_measured_in_its_process():
    found = measure_peers("matmul:16x16x16", ["numpy"], 1, repeat=3)[0]
    assert len(found.samples) == 3 and all(0 < each < 1 for each in found.samples)


def test_an_operator_without_a_counterpart_says_so():
    assert "no counterpart of pad" in measure_peers("pad:3x3", ["numpy"], 1)[0].reason


def test_unknown_libraries_are_refused():
    with pytest.raises(OptionError, match="expected some of numpy, torch"):
        measure_peers("matmul:3x3x3", ["tvn"], 1)
