"""Pads of ONNX by negative amounts, along extents that only a call knows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import motet
from motet.errors import CallError, CompileError

PADS = [[-3, 0, 0, 0], [-2, 0, -1, 0], [-3, 1, 1, 0], [-2, 1, -1, -2], [0, -5, 2, 0]]  # begins, then ends


def padded_model(pads: list[int], version: int, extents: list[int | str]) -> onnx.ModelProto:
    by_attribute = version < 11
    node = helper.make_node("Pad", ["x"] if by_attribute else ["x", "pads"], ["y"], "pad",
                            **({"pads": pads} if by_attribute else {}))  # fmt: skip
    graph = helper.make_graph(
        [node], "main", [helper.make_tensor_value_info("x", TensorProto.FLOAT, extents)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [] if by_attribute else [numpy_helper.from_array(np.array(pads), "pads")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=6)


def removed(pads: list[int], axis: int) -> int:
    return -min(pads[axis], 0) - min(pads[axis + 2], 0)


def padded(x: np.ndarray, pads: list[int]) -> np.ndarray:
    sides = list(zip(pads[:2], pads[2:], strict=True))
    kept = [slice(max(0, -low), size - max(0, -high)) for (low, high), size in zip(sides, x.shape, strict=True)]
    return np.pad(x[tuple(kept)], [(max(0, low), max(0, high)) for low, high in sides])


@pytest.mark.parametrize("version", [10, 13])
@pytest.mark.parametrize("pads", PADS, ids=str)
def test_no_more_is_removed_than_there_is(pads: list[int], version: int) -> None:
    with motet.load(motet.compile(padded_model(pads, version, ["n", "m"]))) as session:
        for shape in [(3, 5), (4, 7), (9, 6), (2, 5), (0, 9), (7, 1), (7, 3), (1, 1)]:
            x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
            short = [axis for axis in (0, 1) if shape[axis] < removed(pads, axis)]
            if not short:
                np.testing.assert_array_equal(session(x), padded(x, pads))
                continue
            said = "|".join(f"axis {axis} of .* must be at least {removed(pads, axis)}" for axis in short)
            with pytest.raises(CallError, match=f'Pad "pad": ({said})'):
                session(x)


def test_known_extents_are_compared_when_compiling() -> None:
    with pytest.raises(CompileError, match=r"'pad': Pad: axis 1 of input 0 must be at least 5, .*: it is 4"):
        motet.compile(padded_model([0, -3, 0, -2], 13, ["n", 4]))
