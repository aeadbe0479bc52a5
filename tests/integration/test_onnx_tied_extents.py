"""Operators of ONNX whose constant parameters are as long as an axis that only a call knows.

Each is a model of its own, since what is constant is folded. Right extents are compared with ONNX's reference, wrong
ones must be refused: also those that would broadcast, or would read a part of a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import motet
from motet.errors import CallError, CompileError

Extents = Sequence["int | str"]
RANDOM = np.random.default_rng(0)


def of(*shape: int, dtype: type = np.float32, random: np.random.Generator = RANDOM) -> np.ndarray:
    values = random.uniform(0.5, 2, shape) if dtype is np.float32 else random.integers(0, 2, shape)
    return values.astype(dtype)


@dataclass(frozen=True)
class Tied:
    """A node `op` of one input of `extents` and of `constants`; it fits where "n" is `right`."""

    op: str
    extents: Extents
    constants: Sequence[np.ndarray | None]
    right: int = 9
    wrong: Sequence[int] = (1, 3, 18)
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dtype: type = np.float32
    outputs: int = 1
    said: str = ""  # in the error, if it is not of the operator
    close: float = 1e-5
    place: int = 0  # of the input among the operands
    opset: int = 24


NINE = of(9)
HEADS = {"q_num_heads": 2, "kv_num_heads": 2}
TIED = {
    "batch": Tied("BatchNormalization", (2, "n", 5), [NINE, NINE, NINE, NINE]),
    "batch of vectors": Tied("BatchNormalization", (2, "n"), [NINE, NINE, NINE, NINE]),
    "instance": Tied("InstanceNormalization", (2, "n", "w"), [NINE, NINE]),
    "instance of images": Tied("InstanceNormalization", (2, "n", 4, 4), [NINE, NINE]),
    "group": Tied("GroupNormalization", (2, "n", "w"), [NINE, NINE], attributes={"num_groups": 1}),
    "groups": Tied("GroupNormalization", (2, "n", 4, 4), [NINE, NINE], attributes={"num_groups": 3}),
    "layer": Tied("LayerNormalization", (2, "n"), [NINE, NINE]),
    "layer's offset": Tied("LayerNormalization", (2, "n"), [of(1), NINE]),
    "root": Tied("RMSNormalization", (2, "n"), [NINE]),
    "root of two axes": Tied("RMSNormalization", ("n", "w"), [of(9, 1)], attributes={"axis": 0}),
    "slope": Tied("PRelu", (2, "n"), [NINE]),
    "added": Tied("Gemm", ("n", 4), [of(4, 5), of(9, 1)]),
    "scaled": Tied("Gemm", ("n", 4), [of(4, 5), of(9, 1)], attributes={"alpha": 2.0, "beta": 0.5}),
    "factor": Tied("MatMul", ("n", 2, 4), [of(9, 4, 3)], wrong=(3, 18)),
    "channels": Tied("Conv", (1, "n", 8), [of(4, 9, 3)]),
    "widened": Tied("DequantizeLinear", (2, "n", 3), [NINE, of(9, dtype=np.uint8)], dtype=np.uint8),
    "narrowed": Tied("QuantizeLinear", (2, "n", 3), [NINE, of(9, dtype=np.uint8)], close=1.01),
    "blocks": Tied("QuantizeLinear", (2, "n"), [of(2, 3), of(2, 3, dtype=np.uint8)], close=1.01,
                   attributes={"block_size": 3}, wrong=(1, 3, 6, 10)),
    "columns": Tied("ReverseSequence", (5, "n", 2), [np.arange(1, 10) % 5]),
    "grid": Tied("GridSample", ("n", 2, 4, 4), [of(9, 3, 3, 2) - 1], close=1e-4),
    "rows": Tied("NegativeLogLikelihoodLoss", ("n", 5), [np.arange(9) % 5], attributes={"reduction": "none"}),
    "weights": Tied("NegativeLogLikelihoodLoss", (3, "n"), [np.arange(3), NINE], attributes={"reduction": "none"}),
    "mask": Tied("Attention", (2, 2, "n", 4), [of(2, 2, 5, 4), of(2, 2, 5, 4), of(9, 5)], close=1e-4),
    "cache": Tied("TensorScatter", ("n", 4, 3), [of(9, 1, 3)], attributes={"axis": 1}),
    "nothing joined": Tied("Concat", (3, "n"), [np.zeros((0, 9), np.float32)], attributes={"axis": 0}),
    "thirds": Tied("Split", ("n", 2), [], attributes={"num_outputs": 3}, outputs=3, wrong=(1,)),
    "sixths": Tied("Split", (2, "n"), [], right=11, attributes={"num_outputs": 6, "axis": -1}, outputs=6,
                   wrong=(1, 2, 3, 4, 7, 8, 9)),
    "groups of too few": Tied("GroupNormalization", (3, "n", 4), [of(2), of(2)], 2, (1, 4), {"num_groups": 2}),
    "scales of groups": Tied("GroupNormalization", (3, "n", 4), [of(2), of(2)], 4, (1, 3), {"num_groups": 2}, opset=18),
    "gates": Tied("GRU", (1, "n", 4), [of(3, 2, 5), of(1, 12, 5), of(1, 24)], 12, (11, 13, 24), {"hidden_size": 4},
                  outputs=2, place=2),
    "offsets of gates": Tied("LSTM", (1, "n"), [of(3, 2, 5), of(1, 16, 5), of(1, 16, 4)], 32, (1, 31, 64),
                             {"hidden_size": 4}, outputs=3, place=3),
    "offset of filters": Tied("Conv", ("n",), [of(2, 4, 7), of(3, 4, 3)], 3, (1, 2, 6), place=2),
    "filters": Tied("Conv", ("n", 2, 3), [of(2, 4, 7), of(4)], 4, (2, 6), {"group": 2}, place=1),
    "offset of channels": Tied("ConvTranspose", ("n",), [of(2, 4, 5), of(4, 3, 2)], 6, (1, 3), {"group": 2}, place=2),
    "repeats": Tied("Tile", ("n",), [of(3, 2)], 2, (0, 1, 3), dtype=np.int64, place=1),
    "limit": Tied("Clip", ("n",), [of(3, 2)], 1, (0, 2, 3), place=1),
    "ends": Tied("Slice", ("n",), [of(5, 2), np.array([0]), np.array([0])], 1, (0, 2), dtype=np.int64, place=2),
    "ends along an axis": Tied("Slice", ("n",), [of(5, 2), np.array([0])], 1, (0, 2), dtype=np.int64, place=2),
    "parts": Tied("Split", ("n", 2), [], 5, (0, 4, 6), {"split": [2, 3]}, outputs=2, opset=12),
    "parts of a known axis": Tied("Split", (5, "n"), [], 4, (), {"split": [2, 3]}, outputs=2, opset=12),
    "place": Tied("ArgMax", ("n", 2), [], wrong=(0,)),
    "kept and left": Tied("OneHot", ("n",), [np.arange(3), np.array(4)], 2, (0, 1, 3), place=2),
    "half of a head": Tied("RotaryEmbedding", (2, 4, "n"), [of(2, 4, 8), of(2, 4, 2)], 2, (1, 3, 4), {"num_heads": 2},
                           place=1),
    "update": Tied("TensorScatter", (2, "n", 3), [of(2, 5, 3)], 0, (6, 9), {"axis": 1}, place=1),
    "keys": Tied("Attention", (2, 5, "n"), [of(2, 2, 4), of(2, 5, 4)], 4, (2, 8), HEADS, place=1, close=1e-4),
    "batch of keys": Tied("Attention", ("n", 5, 4), [of(2, 2, 4), of(2, 5, 4)], 2, (1, 4), HEADS, place=1, close=1e-4),
    "values": Tied("Attention", (2, 5, "n"), [of(2, 2, 4), of(2, 5, 4)], 8, (3,), HEADS, place=2, close=1e-4),
}  # fmt: skip
# Results that are known without the node, mostly because they have no elements.
NONE = {
    "rows": Tied("Gemm", (4, "n"), [of(4, 0), of(9, 0)], attributes={"transA": 1}),
    "inner axis": Tied("Gemm", (5, "n"), [of(0, 9), of(5, 0)], attributes={"transB": 1}),
    "product": Tied("MatMul", (0, "n"), [of(9, 5)]),
    "products": Tied("MatMul", ("n", 2, 4), [of(9, 4, 0)], wrong=(3, 18)),
    "vector": Tied("MatMul", ("n",), [of(9, 0)]),
    "bytes": Tied("MatMulInteger", (0, "n"), [of(9, 5, dtype=np.uint8)], dtype=np.uint8),
    "letters": Tied("Einsum", ("n", 0), [of(9, 0)], attributes={"equation": "ij,ij->"}, wrong=(3, 18)),
    "sum": Tied("Add", ("n", 0), [of(9, 0)], wrong=(3, 18)),
    "mean": Tied("Mean", ("n", 0), [of(9, 1), of(9, 0)], wrong=(0, 3)),
    "choice": Tied("Where", ("n", 0), [of(9, 0), of(9, 1)], dtype=np.bool_, wrong=(3, 18)),
    "slope": Tied("PRelu", ("n", 0), [of(9, 1)]),
    "joined": Tied("Concat", ("n", 3, 0), [of(9, 2, 0)], attributes={"axis": 1}),
    "indices": Tied("ScatterElements", ("n", 1, 0), [of(33, 1, 4), of(9, 1, 0)], attributes={"axis": 0}, dtype=np.int64,
                    place=1),
    "slices": Tied("ScatterND", (4, "n", 0), [np.arange(3)[:, None], of(3, 9, 0)]),
    "elements": Tied("GatherElements", ("n", 0), [of(9, 0, dtype=np.int64)], wrong=(1, 3), attributes={"axis": 1}),
    "channels": Tied("Conv", (0, "n", 8), [of(4, 9, 3)]),
    "offset": Tied("Conv", ("n",), [of(0, 3, 8), of(9, 3, 3)], place=2),
    "batch": Tied("BatchNormalization", (0, "n", 5), [NINE, NINE, NINE, NINE]),
    "variance": Tied("BatchNormalization", ("n",), [of(2, 9, 0), NINE, NINE, NINE], place=4),
    "layer": Tied("LayerNormalization", (0, "n"), [NINE]),
    "root": Tied("RMSNormalization", (0, "n"), [NINE]),
    "gates": Tied("GRU", (3, 0, "n"), [of(1, 12, 9), of(1, 12, 4)], attributes={"hidden_size": 4}, outputs=2),
    "widened": Tied("DequantizeLinear", ("n", 0), [NINE], attributes={"axis": 0}, dtype=np.uint8),
    "square": Tied("Det", (0, "n", 3), [], right=3, wrong=(1, 2, 4)),
    "expanded": Tied("Expand", ("n", 1, 0), [np.array([3, 4, 0])], 3, (0, 2, 4)),
    "expanded to nothing": Tied("Expand", ("n", 3), [np.array([0, 3])], 1, (2, 3)),
    "nothing": Tied("Reshape", (3, "n"), [np.array([0, 4])], 0, (1, 4), {"allowzero": 1}),
    "axis of one": Tied("Squeeze", ("n", 3, 0), [np.array([0])], 1, (0, 2, 3)),
    "index": Tied("Gather", ("n", 0), [np.array([0, 3])], 4, (0, 1, 3)),
    "index from the end": Tied("Gather", (0, "n"), [np.array(-4)], 5, (0, 3), {"axis": 1}),
    "chosen": Tied("Compress", ("n", 0), [np.array([True, False, True])], 3, (0, 2), {"axis": 0}, said="Gather"),
    "ellipsis": Tied("Einsum", ("n", 0, 4), [of(2, 3, 0)], 2, (0, 3, 4), {"equation": "...jk,...ij->...ik"}),
    "kept and left": Tied("OneHot", ("n",), [np.zeros((3, 0), np.int64), np.array(4)], 2, (0, 1, 3), place=2),
    "rotations": Tied("RotaryEmbedding", (0, "n", 2), [of(0, 4, 8), of(0, 4, 2)], 4, (2, 5), {"num_heads": 2}, place=1),
    "no filters": Tied("Conv", ("n", 4, 3), [of(2, 4, 7), of(0)], 0, (1, 2), place=1),
    "no update": Tied("TensorScatter", (2, "n", 3), [of(2, 0, 3)], 4, (), {"axis": 1}),
    "no indices": Tied("ScatterND", (2, "n"), [of(4, 3), np.zeros((2, 0, 2), np.int64)], 0, (1, 2), place=2),
}  # fmt: skip
CASES = TIED | {f"no elements, {name}": tied for name, tied in NONE.items()}


def model_of(tied: Tied, extents: Extents) -> onnx.ModelProto:
    named = {f"c{n}": array for n, array in enumerate(tied.constants) if array is not None}
    inputs = [f"c{n}" if array is not None else "" for n, array in enumerate(tied.constants)]
    inputs.insert(tied.place, "x")
    outputs = [f"y{number}" for number in range(tied.outputs)]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(tied.op, inputs, outputs, "node", **tied.attributes)], "g",
        [onnx.helper.make_tensor_value_info("x", onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tied.dtype)), extents)],
        [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in named.items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", tied.opset)], ir_version=10)


def given(tied: Tied, n: int) -> np.ndarray:
    extents = ({"n": n, "w": 7}.get(str(e), e) for e in tied.extents)
    return of(*extents, dtype=tied.dtype, random=np.random.default_rng(n))  # pyright: ignore


def expected(model: onnx.ModelProto, x: np.ndarray) -> Any:
    """The results by onnx's reference, but for ConvTranspose, of whose groups it takes other filters."""
    if model.graph.node[0].op_type != "ConvTranspose":
        return ReferenceEvaluator(model).run(None, {"x": x})
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


@pytest.mark.parametrize("name", CASES)
def test_parameters_fit_an_axis_that_a_call_decides(name: str) -> None:
    tied = CASES[name]
    model = model_of(tied, tied.extents)
    session = motet.load(motet.compile(model, devices={"": "host{cpu=x86-64-v3}"}))
    x = given(tied, tied.right)
    found = session(x)
    for result, wanted in zip(found if isinstance(found, tuple) else (found,), expected(model, x), strict=True):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), tied.close, tied.close)
    for n in tied.wrong:
        with pytest.raises(CallError, match=rf'main: {tied.said or tied.op} "node[^"]*": .*\d') as refused:
            session(given(tied, n))
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["batch", "instance", "group", "root", "widened", "columns", "rows", "cache"])
def test_parameters_that_do_not_fit_a_known_axis_are_refused(name: str) -> None:
    tied = TIED[name]
    extents = [{"n": 1, "w": 7}.get(str(e), e) for e in tied.extents]
    with pytest.raises(CompileError, match=r"(node 'node': .*: 9 and 1|types or shapes do not fit)") as refused:
        motet.compile(model_of(tied, extents))
    assert "\n" not in str(refused.value)


def test_zero_points_fit_rows_and_columns_that_a_call_decides() -> None:
    """ONNX's reference knows none of rows."""
    rows, columns = of(9, dtype=np.uint8), of(4, dtype=np.uint8)
    made = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMulInteger", ["x", "w", "rows", "columns"], ["y"], "node")], "g",
        [made("x", onnx.TensorProto.UINT8, ["n", 5]), made("w", onnx.TensorProto.UINT8, [5, "m"])],
        [made("y", onnx.TensorProto.INT32, None)],
        [onnx.numpy_helper.from_array(rows, "rows"), onnx.numpy_helper.from_array(columns, "columns")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    session = motet.load(motet.compile(model, devices={"": "host{cpu=x86-64-v3}"}))
    x, w = of(9, 5, dtype=np.uint8), of(5, 4, dtype=np.uint8)
    exact = (x.astype(np.int32) - rows[:, None].astype(np.int32)) @ (w.astype(np.int32) - columns.astype(np.int32))
    np.testing.assert_array_equal(session(x, w), exact)
    for n, m in ((1, 4), (3, 4), (9, 1), (9, 8)):
        with pytest.raises(CallError, match=r'MatMulInteger "node": axis 0 of input [23] must be 1, or equal to '):
            session(of(n, 5, dtype=np.uint8), of(5, m, dtype=np.uint8))


# Nodes that give a computed extent to a product without elements, and this extent for 9 elements.
COMPUTED: dict[str, tuple[Sequence[str], dict[str, Any], int]] = {
    "Tile": (("Tile", "x", "twice"), {}, 18), "Pad": (("Pad", "x", "pads"), {}, 11),
    "Slice": (("Slice", "x", "two", "large", "two", "two"), {}, 4), "Resize": (("Resize", "x", "", "scales"), {}, 13),
    "AveragePool": (("AveragePool", "x"), {"kernel_shape": [3], "strides": [3], "dilations": [2], "pads": [0, 2]}, 3),
    "MaxPool": (("MaxPool", "x"), {"kernel_shape": [2], "strides": [2], "ceil_mode": 1}, 5),
    "Conv": (("Conv", "x", "filters"), {"strides": [2]}, 4),
    "ConvTranspose": (("ConvTranspose", "x", "filters"), {}, 11),
}  # fmt: skip
COMPUTING = {
    "twice": np.array([1, 1, 2]), "pads": np.array([0, 0, 2, 0, 0, 0]), "two": np.array([2]),
    "large": np.array([1 << 40]), "scales": np.array([1, 1, 1.5], np.float32), "filters": of(5, 5, 3),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_extents_of_a_value_that_only_a_known_result_needs_are_compared(name: str) -> None:
    (op, *inputs), attributes, right = COMPUTED[name]
    made = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, inputs, ["v"], "first", **attributes),
         onnx.helper.make_node("MatMul", ["v", "none"], ["y"], "node")], "g",
        [made("x", onnx.TensorProto.FLOAT, [2, 5, "n"]), made("none", onnx.TensorProto.FLOAT, ["k", 0])],
        [made("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(COMPUTING[name], name) for name in sorted({*inputs} & {*COMPUTING})],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10)
    session = motet.load(motet.compile(model, devices={"": "host{cpu=x86-64-v3}"}))
    assert session(of(2, 5, 9), of(right, 0)).shape == (2, 5, 0)
    for wrong in (0, right - 1, right + 1):
        with pytest.raises(CallError, match=r'MatMul "node": axis 0 of input 1 and axis 2 of input 0 must be equal'):
            session(of(2, 5, 9), of(wrong, 0))


def test_an_axis_is_cropped_or_padded_to_its_centre_whatever_it_is() -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("CenterCropPad", ["x", "three"], ["y"], "node", axes=[0])], "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", "m"])],
        [onnx.helper.make_empty_tensor_value_info("y")], [onnx.numpy_helper.from_array(np.array([3]), "three")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    session, reference = motet.load(motet.compile(model)), ReferenceEvaluator(model)
    for x in (of(6, 2), of(5, 2), of(4, 1), of(3, 1), of(2, 3), of(1, 1), of(0, 2)):
        np.testing.assert_array_equal(session(x), np.asarray(reference.run(None, {"x": x})[0]))


def test_indices_of_an_axis_are_checked_where_another_one_has_no_elements() -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["x", "places"], ["y"], "node")], "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", "m"])],
        [onnx.helper.make_empty_tensor_value_info("y")], [onnx.numpy_helper.from_array(np.array([0, -4]), "places")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    session = motet.load(motet.compile(model))
    assert session(of(4, 0)).shape == (2, 0)
    for shape in ((3, 0), (0, 0), (3, 2)):
        with pytest.raises(CallError, match=rf'Gather "node": axis 0 of input 0 must be at least 4: 4 and {shape[0]}'):
            session(of(*shape))


def test_what_nothing_reads_demands_nothing() -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "none"], ["unread"], "node"), onnx.helper.make_node("Neg", ["x"], ["y"])],
        "g", [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 0])],
        [onnx.helper.make_empty_tensor_value_info("y")], [onnx.numpy_helper.from_array(of(9, 0), "none")],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10)
    session = motet.load(motet.compile(model, devices={"": "host{cpu=x86-64-v3}"}))
    assert session(of(3, 0)).shape == (3, 0)
