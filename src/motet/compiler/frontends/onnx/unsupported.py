"""Refuses operators that have no lowering, or whose lowering crashes the process, and values that no memory holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from motet.artifact.validation import MAXIMUM_BYTES
from motet.compiler.frontends.onnx.attribute_values import MOST_PARTS
from motet.compiler.frontends.onnx.bodies import each_body
from motet.compiler.frontends.onnx.empty_tensors import OF_DATA
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.operator_demands import addressed
from motet.compiler.frontends.onnx.well_formed import elements, label, mixed, of_two_types
from motet.compiler.frontends.onnx.writing import element_types, static_shapes

if TYPE_CHECKING:
    import onnx

_TABULATED = ("AffineGrid", "Col2Im", "Resize")  # whose lowerings have tables with an entry for each place of an axis
_LONGEST = 1 << 28


def refuse_unknown(model: OnnxModel) -> None:
    """Raises CompileError for the first node whose operator has no lowering, or whose lowering crashes the process.
    Call it after constant folding and type inference."""
    for node in model.proto.graph.node:
        if model.inner and node.op_type in OF_DATA and not _is_constant(node, model):
            raise model.error(
                f"node {node.name!r}: operator {node.op_type} is not supported in a body of If, Loop or Scan: the "
                "extents of its results depend on data; expected it outside of them"
            )
        if node.op_type in UNKNOWN and node.domain in ("", "ai.onnx"):
            raise model.error(f"node {node.name!r}: operator {node.op_type} is not supported: {UNKNOWN[node.op_type]}")
    each_body(model, refuse_unknown)


def refuse_large(model: OnnxModel) -> None:
    """Raises CompileError for the first node with a result of more bytes than a tensor may have, or of extents below 0,
    or that joins or makes too many tensors. Types must be inferred."""
    import onnx

    shapes, types = static_shapes(model), element_types(model)
    for node in model.proto.graph.node:
        parts = max(len(set(node.input)), len(node.output))
        if node.op_type in ("Concat", "Split") and parts > MOST_PARTS:
            raise model.error(
                f"{label(node)}: operator {node.op_type} of {parts:,} parts; expected at most {MOST_PARTS:,}: one "
                "tensor with an axis for the parts takes one node"
            )
        for name in node.output:
            if not (shape := shapes.get(name)) or not types.get(name):
                continue
            if min(shape) < 0:
                raise model.error(
                    f"{label(node)}: operator {node.op_type}: its result {name!r} has the extents {list(shape)}; "
                    "expected none below 0"
                )
            if node.op_type in _TABULATED and max(shape) > _LONGEST:
                raise model.error(
                    f"{label(node)}: operator {node.op_type}: its result {name!r} has the extents {list(shape)}; "
                    f"expected at most {_LONGEST:,}"
                )
            size = math.prod(shape) * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(types[name])).itemsize
            if size > MAXIMUM_BYTES:
                raise model.error(
                    f"{label(node)}: operator {node.op_type}: its result {name!r} of extents {list(shape)} has "
                    f"{size:,} bytes; expected at most {MAXIMUM_BYTES:,}"
                )
    each_body(model, refuse_large)


def refuse_operands(model: OnnxModel) -> None:
    """Raises CompileError for the first node with operands of which its lowering ends the process: of a type, of more
    or fewer axes, or of two types. Types must be inferred."""
    import onnx

    version, types, shapes = model.opsets.get("", 0), element_types(model), static_shapes(model)
    for node in model.proto.graph.node:
        known = node.op_type in _OPERATORS and node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type, version)
        schema = onnx.defs.get_schema(node.op_type, version) if known else None
        for number, name in enumerate(node.input if schema is not None else ()):
            found = expected = ""
            place, kind, shape = (node.op_type, number), types.get(name, 0), shapes.get(name)
            if schema is not None and kind in _DEADLY.get(place, ()):
                formal = schema.inputs[number]
                found = f"({formal.name}) is of type {onnx.TensorProto.DataType.Name(kind).lower()}"
                expected = f"one of {', '.join(elements(formal))}"
            elif shape is not None and place in _SINGLE and math.prod(shape) != 1:
                found, expected = f"has the extents {list(shape)}", "one element"
            elif shape == () and place in _VECTORS:
                found, expected = "has the extents []", "a vector"
            elif place == ("Reshape", 0) and shape is not None:
                whole = shapes.get(node.output[0], shape)
                if math.prod(shape) != math.prod(whole):
                    found, expected = f"has the extents {list(shape)}", f"as many elements as {list(whole)}"
            if found:
                raise model.error(
                    f"{label(node)}: operator {node.op_type}: operand {number} {found}; expected {expected}"
                )
        if schema is not None and node.op_type in (*_OF_FIRST_TYPE, *_COMPARISONS):
            for pair in mixed(node, schema, types):
                one, other = (types[name] for name in pair)
                with_bits = {one, other} & _BYTES and 9 in (one, other)
                if with_bits if node.op_type in _COMPARISONS else one in _BYTES and other not in _BYTES:
                    raise of_two_types(model, node, types, *pair)
    each_body(model, refuse_operands)


def refuse_outside(model: OnnxModel) -> None:
    """Raises CompileError for the first constant index outside of its axis: folding it ends the process. A body may
    never run: there only for nodes of constants."""
    shapes = static_shapes(model)
    for node in model.proto.graph.node:
        if node.op_type not in _INDEXED or node.domain not in ("", "ai.onnx") or len(node.input) < 2:
            continue
        shape, given = shapes.get(node.input[0]), model.constants.get(node.input[1])
        if shape is None or given is None or (model.inner and node.input[0] not in model.constants):
            continue
        axes = addressed(node, given, len(shape))
        extents = np.array([shape[axis] for axis in axes])
        wrong = np.argwhere((given < -extents) | (given >= extents)) if axes else np.empty((0, 0), np.int64)
        if len(wrong):
            place = tuple(wrong[0])
            number = place[-1] if len(axes) > 1 else 0
            raise model.error(
                f"{label(node)}: operator {node.op_type}: index {given[place]} at {[int(each) for each in place]} is "
                f"outside of axis {axes[number]} of extent {extents[number]}"
            )
    each_body(model, refuse_outside)


def _is_constant(node: onnx.NodeProto, model: OnnxModel) -> bool:
    """Whether the condition of a Compress is constant."""
    return node.op_type == "Compress" and node.input[1] in model.constants


_BYTES, _UNSIGNED, _FLOATS = {2, 3}, {4, 13}, {1, 10, 11, 16}  # uint8, int8; uint16, uint64; floats
_INTEGERS = {2, 3, 4, 5, 6, 7, 12, 13}
# Operators, the number of an operand, and its types of which the lowering ends the process. ONNX has none of these
# types there, but neither has it others that Motet compiles.
_DEADLY: dict[tuple[str, int], set[int]] = {(operator, number): types for operators, number, types in (
    (("AffineGrid", "AveragePool", "CausalConvWithState", "Conv", "ConvTranspose", "DynamicQuantizeLinear", "GRU",
      "Gemm", "GlobalAveragePool", "LRN", "LSTM", "LpNormalization", "MatMul", "Mish", "RMSNormalization", "RNN",
      "Softplus"), 0, _BYTES),
    (("Celu", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu"), 0, _BYTES | _UNSIGNED),
    (("Hardmax", "LayerNormalization", "Pow", "SoftmaxCrossEntropyLoss", "ThresholdedRelu"), 0, _UNSIGNED),
    (("GatherElements", "GatherND", "NegativeLogLikelihoodLoss", "ScatterND", "SoftmaxCrossEntropyLoss"), 1, _FLOATS),
    (("MaxUnpool", "Scatter", "ScatterElements"), 1, {11}),
    (("Split",), 1, (_INTEGERS | {9}) - {7}),
    (("Resize",), 3, (_INTEGERS | {9} | _FLOATS) - {7}),
    (("InstanceNormalization",), 0, _INTEGERS),
    (("ConvInteger", "QLinearConv"), 0, {9}),
    (("QLinearConv",), 1, _BYTES),
    (("QLinearConv",), 7, _UNSIGNED),
    (("QuantizeLinear",), 2, {13}),
    (("MaxPool",), 0, {9}),
    (("Trilu",), 1, _FLOATS),
) for operator in operators}  # fmt: skip
# Operands of which it ends the process unless they have one element, or unless they have an axis.
_SINGLE = {
    ("BlackmanWindow", 0), ("Clip", 1), ("Clip", 2), ("CumSum", 1), ("Dropout", 2), ("HammingWindow", 0),
    ("HannWindow", 0), ("NonMaxSuppression", 2), ("NonMaxSuppression", 3), ("NonMaxSuppression", 4),
}  # fmt: skip
_VECTORS = {
    ("ConstantOfShape", 0), ("ReduceMean", 1), ("ReduceProd", 1), ("Slice", 1), ("Slice", 2), ("Slice", 3),
    ("Slice", 4), ("SoftmaxCrossEntropyLoss", 1), ("Tile", 1),
}  # fmt: skip
# Operators of one type whose lowering ends the process where only the first operand is of bytes, and those where one is
# of bytes and the other of bits. `well_formed.py` refuses all such models whose types are known without inference.
_OF_FIRST_TYPE = (
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Clip", "Concat", "Div", "Max", "Min", "Mul", "PRelu", "Where",
)  # fmt: skip
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_OPERATORS = {operator for operator, _ in (*_DEADLY, *_SINGLE, *_VECTORS)} | {*_OF_FIRST_TYPE, *_COMPARISONS, "Reshape"}
_INDEXED = ("Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND")
UNKNOWN: dict[str, str] = {
    "ImageDecoder": "images are decoded before a call; give it the pixels",
}
