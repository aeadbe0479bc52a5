"""Writes graphs as ONNX models, several in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper
from tests.fuzz.dtypes import DTYPES
from tests.fuzz.graph import Array, Graph
from tests.fuzz.shapes import Types, types_of

ELEMENTS = {
    "f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "f64": TensorProto.DOUBLE,
    "i8": TensorProto.INT8, "i16": TensorProto.INT16, "i32": TensorProto.INT32, "i64": TensorProto.INT64,
    "u8": TensorProto.UINT8, "u16": TensorProto.UINT16, "u32": TensorProto.UINT32, "u64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}  # fmt: skip


def onnx_model(graphs: Sequence[Graph]) -> bytes:
    """One model of graphs of one operator set; the names of graph number k begin with `pk_`."""
    whole = onnx.GraphProto(name="fuzz")
    for number, graph in enumerate(graphs):
        _write(whole, graph, f"p{number}_")
    opset = helper.make_opsetid("", graphs[0].opset)
    model = helper.make_model(whole, opset_imports=[opset], ir_version=10)
    return model.SerializeToString()


def _write(whole: onnx.GraphProto, graph: Graph, prefix: str) -> None:
    def name(plain: str) -> str:
        return prefix + plain if plain else ""

    types = types_of(graph)
    for entry in graph.inputs:
        extents = [prefix + e if isinstance(e, str) else e for e in entry.shape]
        whole.input.append(helper.make_tensor_value_info(name(entry.name), ELEMENTS[entry.dtype], extents))
    for constant, array in graph.constants.items():
        whole.initializer.append(_tensor(name(constant), array))
    for number, node in enumerate(graph.nodes):
        attributes = {key: _attribute(key, value) for key, value in node.attributes.items()}
        whole.node.append(helper.make_node(
            node.op, [name(i) for i in node.inputs], [name(o) for o in node.outputs], name=f"{prefix}node{number}",
            **attributes,
        ))
    for number, result in enumerate(graph.results):
        # A result of its own name for each: one value may be a result twice, or be an input.
        last = f"{prefix}r{number}"
        whole.node.append(helper.make_node("Identity", [name(result)], [last], name=f"{prefix}result{number}"))
        whole.output.append(_result(last, types, result, prefix))


def _result(last: str, types: Types, result: str, prefix: str) -> onnx.ValueInfoProto:
    dtype, shape = types[result]
    extents = [prefix + e if isinstance(e, str) else e for e in shape]
    return helper.make_tensor_value_info(last, ELEMENTS[dtype], extents)


def _tensor(name: str, array: Array) -> onnx.TensorProto:
    dtype = next(short for short, kind in DTYPES.items() if kind == array.dtype)
    return helper.make_tensor(name, ELEMENTS[dtype], array.shape, array.tobytes(), raw=True)


def _attribute(key: str, value: Any) -> Any:
    return ELEMENTS[value] if key == "to" else value
