"""Evaluates single ONNX nodes on constants.

Element-wise functions of floats are computed in double precision and rounded once. Other operators are evaluated by
onnx's reference evaluator, except those in `_INEXACT` on floats: the evaluator computes these in the narrow type, by
formulas that overflow or cancel, or handles NaN and infinities unlike the operator. They stay in the graph, and their
kernels run when compiling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.model import OnnxModel

if TYPE_CHECKING:
    import onnx

# A constant of more bytes is folded only through operations that do not grow it.
FOLD_BYTES = 64 << 10
NEVER_FOLDED = frozenset({
    "Bernoulli", "DequantizeLinear", "Dropout", "EyeLike", "Multinomial", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike", "If", "Loop", "Scan", "SequenceConstruct", "SequenceEmpty",
    "SplitToSequence", "Optional", "ImageDecoder",
    "LpNormalization",  # for p=1 the evaluator adds the elements, not their magnitudes
    "MaxPool",  # the evaluator moves padding of one axis to another
})  # fmt: skip
_BYTES = ("int8", "uint8")
_INEXACT = frozenset({
    "ArgMax", "ArgMin", "Attention", "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "CumSum",
    "DynamicQuantizeLinear", "Einsum", "GRU", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool",
    "GridSample", "GroupNormalization", "InstanceNormalization", "LRN", "LSTM", "LayerNormalization", "LogSoftmax",
    "LpPool", "MatMul", "Mean", "MeanVarianceNormalization", "Mod", "QuantizeLinear", "RMSNormalization",
    "RNN", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare", "Resize", "RotaryEmbedding", "Softmax", "Sum", "TopK", "Upsample",
})  # fmt: skip


def evaluate(
    model: OnnxModel, node: onnx.NodeProto, shapes: Callable[[], Mapping[str, tuple[int, ...]]]
) -> dict[str, np.ndarray] | None:
    """The results of a node with constant inputs by name; None if it is not constant or a result would be too large.
    `shapes` gives the known shapes of values: most nodes are not constant, and need none."""
    if node.op_type in NEVER_FOLDED or node.domain not in ("", "ai.onnx"):
        return None
    if any(item.name in ("short_from", "short_to") for item in node.attribute):
        return None  # the evaluator cannot know that bytes represent other elements
    if any(name and name not in model.constants for name in node.input) or _has_subgraph(node):
        return None
    inputs = {name: model.constants[name] for name in node.input if name}
    if node.op_type == "Cast" and all(array.ndim > 1 and array.dtype.name in _BYTES for array in inputs.values()):
        return None  # products read quantised weights as bytes
    if node.op_type in _INEXACT and any(is_floating(array) for array in inputs.values()):
        return None
    limit = max([FOLD_BYTES, *(array.nbytes for array in inputs.values())])
    # Skip the evaluation of results that would be too large (an element has at least one byte).
    if any(int(np.prod(shapes().get(name, ()))) > limit for name in node.output):
        return None
    results = _of_function(node, inputs) or _run_reference(model, node, inputs)
    names = [name for name in node.output if name]
    if results is None or any(not isinstance(result, np.ndarray | np.generic) for result in results):
        return None
    arrays = {name: np.asarray(result) for name, result in zip(names, results, strict=True)}
    if any(array.dtype.kind in "OSU" or array.nbytes > limit for array in arrays.values()):
        return None
    return arrays


def is_floating(array: np.ndarray) -> bool:
    """Whether the elements of an array are floats, including those of `ml_dtypes`."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def _has_subgraph(node: onnx.NodeProto) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)


def _run_reference(model: OnnxModel, node: onnx.NodeProto, inputs: dict[str, np.ndarray]) -> Any:
    import onnx
    from onnx.reference import ReferenceEvaluator

    graph = onnx.helper.make_graph(
        [node],
        "constant",
        [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    single = onnx.helper.make_model(graph, opset_imports=list(model.proto.opset_import))
    try:
        return ReferenceEvaluator(single).run(None, inputs)
    except (NotImplementedError, RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError):
        return None  # the evaluator lacks some operators; the node is then lowered like any other


# -- functions of single elements ------------------------------------------------------------------

Attributes = Mapping[str, float]
_Function = Callable[[np.ndarray, Attributes], np.ndarray]


def _of_function(node: onnx.NodeProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    """The result of a function of floats, or None for other operators."""
    import onnx

    function = _FUNCTIONS.get(node.op_type)
    if function is None or len(inputs) != 1 or len(node.input) != 1 or (node.attribute and node.op_type == "Gelu"):
        return None
    [array] = inputs.values()
    if not is_floating(array):
        return None
    given = {item.name: float(onnx.helper.get_attribute_value(item)) for item in node.attribute}
    with np.errstate(all="ignore"):
        return [function(array.astype(np.float64), given).astype(array.dtype)]


def _sigmoid(x: np.ndarray, given: Attributes) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


def _softplus(x: np.ndarray, given: Attributes) -> np.ndarray:
    """Softplus without overflow: the evaluator computes log(exp(x) + 1), an infinity for large x, and the wheel's
    lowering of a constant's Softplus crashes the process."""
    return np.logaddexp(x, 0.0)


def _elu(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _selu(x: np.ndarray, given: Attributes) -> np.ndarray:
    alpha, gamma = given.get("alpha", 1.67326319217681884765625), given.get("gamma", 1.05070102214813232421875)
    return gamma * _elu(x, alpha)


def _celu(x: np.ndarray, given: Attributes) -> np.ndarray:
    alpha = given.get("alpha", 1.0)
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


_FUNCTIONS: dict[str, _Function] = {
    "Celu": _celu, "Elu": lambda x, given: _elu(x, given.get("alpha", 1.0)), "Erf": lambda x, given: _erf(x),
    "Exp": lambda x, given: np.exp(x), "Gelu": lambda x, given: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "HardSwish": lambda x, given: x * np.clip(x / 6 + 0.5, 0, 1),  # 1/6 is not rounded to float32
    "Log": lambda x, given: np.log(x), "Mish": lambda x, given: x * np.tanh(np.logaddexp(x, 0.0)), "Selu": _selu,
    "Sigmoid": _sigmoid, "Softplus": _softplus, "Tanh": lambda x, given: np.tanh(x),
}  # fmt: skip
