"""Lowers a simplified ONNX model to linalg on tensors, by the torch-mlir wheel's importer and pipelines.

The model's own operator set is tried first. If an operator has no lowering, its ONNX function body replaces it. If an
operand must be a constant but became a parameter, it becomes a constant again. Each remedy is tried once per operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.exact_equality import exact_equality
from motet.compiler.frontends.exact_extrema import exact_extrema
from motet.compiler.frontends.onnx.assert_demands import simplify_asserted
from motet.compiler.frontends.onnx.bodies import all_nodes
from motet.compiler.frontends.onnx.conditional_loops import settle_loops
from motet.compiler.frontends.onnx.defined_operators import defer_defined, settle_defined
from motet.compiler.frontends.onnx.empty_tensors import refuse_empty
from motet.compiler.frontends.onnx.functions import expand_functions
from motet.compiler.frontends.onnx.indices import keep_outside
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.rewrites import rewrite_forms
from motet.compiler.frontends.onnx.scans import settle_products
from motet.compiler.frontends.onnx.settle_extents import settle_extents
from motet.compiler.frontends.onnx.simplify import simplify
from motet.compiler.frontends.onnx.suppression import settle_suppressions
from motet.compiler.frontends.torch.grouped_convolutions import settle_grouped_convolutions
from motet.compiler.frontends.torch.pads import settle_pads
from motet.compiler.frontends.torch.recurrences import settle_recurrences
from motet.compiler.frontends.torch.to_linalg import to_linalg
from motet.compiler.frontends.torch.views import settle_views
from motet.compiler.frontends.unsigned_results import return_signed_constants
from motet.compiler.ir._mlir import ir, new_context, onnx_importer, register_torch_dialect, run_pipeline
from motet.compiler.ir.source_names import keep_operators

if TYPE_CHECKING:
    import onnx

# The wheel's torch-onnx-to-torch-backend-pipeline. To refine shapes, it inlines and folds a program for each operation:
# most of its time, and without effect where all shapes are known.
_DECOMPOSE = "torch-decompose-complex-ops{legal-ops=aten.flatten.using_ints,aten.unflatten.int},canonicalize"
_REFINE = "torch-shape-refinement-pipeline"
_FROM_ONNX = f"func.func(convert-torch-onnx-to-torch,{_DECOMPOSE})"
_KNOWN = "func.func(torch-scalarize-shapes)"
_UNKNOWN = f"{_REFINE},{_KNOWN},{_REFINE}"
_TO_BACKEND = f"torch-refine-public-return,func.func(canonicalize,{_DECOMPOSE})"
PARAMETER_BYTES = 4 << 10
PARAMETER_DTYPES = frozenset({
    "float16", "bfloat16", "float32", "float64", "int8", "uint8",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
})  # fmt: skip
MAX_ATTEMPTS = 24
# Operators whose function body replaces the wheel's lowering: that of RotaryEmbedding crashes for valid models, that of
# CenterCropPad pads dynamic extents that it should crop, and writes outside of its result, that of Gelu takes 0.797724
# for √(2/π) = 0.797885, that of Selu rounds its constants to five digits, those of losses divide by the number of rows
# instead of the sum of weights, and those of windows compute in the type of the result, also in bytes, of which they
# crash.
UNSOUND = frozenset({
    "BlackmanWindow", "CenterCropPad", "Gelu", "HammingWindow", "HannWindow", "NegativeLogLikelihoodLoss",
    "RotaryEmbedding", "Selu", "SoftmaxCrossEntropyLoss",
})  # fmt: skip


@dataclass
class Lowered:
    """A module whose only public function takes the model's inputs, then the constants named in `parameters`."""

    module: ir.Module
    parameters: list[str]


@dataclass
class LoweringError(Exception):
    """A model did not lower: the node, by name and operator if known, and MLIR's message."""

    reason: str
    node: str = ""
    operator: str = ""


def lower(model: OnnxModel) -> Lowered:
    """Lowers `model`, with another remedy after each failure. Raises LoweringError when none is left."""
    constants: set[str] = set()
    rewritten = rewrite_forms(model)
    rewritten |= keep_outside(model)
    if expand_functions(model, UNSOUND) or rewritten:
        simplify_asserted(model)
    first: LoweringError | None = None
    try:
        for _ in range(MAX_ATTEMPTS):
            try:
                return _attempt(model, constants)
            except LoweringError as error:
                first = first or error
                if not _reconsider(model, constants, error):
                    break
        raise first or LoweringError("too many attempts")
    finally:
        del first  # it keeps this frame, which would keep it, and the context of its attempt


def _reconsider(model: OnnxModel, constants: set[str], error: LoweringError) -> bool:
    """Chooses a remedy for `error`; returns whether there is one."""
    node = next((node for node in all_nodes(model.proto.graph) if node.name == error.node), None)
    if node is not None:
        operands = {name for name in node.input if name in model.constants and is_parameter(model.constants[name])}
        if not operands <= constants:
            constants |= operands
            return True
    # Some failures have no location: expand every operator that has a body.
    operators = {node.op_type} if node is not None else {node.op_type for node in all_nodes(model.proto.graph)}
    if not expand_functions(model, operators):
        return False
    simplify(model)
    return True


def is_parameter(array: np.ndarray) -> bool:
    """Whether a constant is large floating-point or quantised data, which is stored outside the module."""
    return array.nbytes >= PARAMETER_BYTES and array.dtype.name in PARAMETER_DTYPES


def _attempt(model: OnnxModel, constants: set[str]) -> Lowered:
    parameters = [
        name for name, array in model.constants.items() if is_parameter(array) and name not in constants
    ]
    proto = _with_constants(model, parameters)
    _require_ranks(proto.graph)
    context = new_context()
    register_torch_dialect(context)
    try:
        module = _import(proto, context)
        keep_operators(module, ("torch.operator",))
        refuse_empty(module, model)
        settle_loops(module)
        settle_extents(module, model)
        defer_defined(module)
        settle_products(module)
        settle_suppressions(module)
        exact_equality(module)
        run_pipeline(module, _FROM_ONNX)
        run_pipeline(module, f"{_KNOWN if shapes_known(module) else _UNKNOWN},{_TO_BACKEND}")
        settle_defined(module)
        settle_views(module)
        settle_grouped_convolutions(module)
        settle_pads(module)
        settle_recurrences(module)
        return_signed_constants(module)
        to_linalg(module)
        exact_extrema(module)
    except ir.MLIRError as error:
        raise explain(model, error) from error
    return Lowered(module, parameters)


def shapes_known(module: ir.Module) -> bool:
    """Whether the types of all results in `module`, in the dialect `torch`, give extents and element types, outside
    loops and branches."""
    kinds: set[ir.Type] = set()
    nested: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if len(op.operation.regions) and op.operation.name not in ("builtin.module", "func.func"):
            nested.append(op.operation)
        kinds.update(result.type for result in op.operation.results)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    tensors = [text for kind in kinds if (text := str(kind)).startswith(("!torch.vtensor", "!torch.tensor"))]
    return not nested and all(map(_STATIC.match, tensors))


_STATIC = re.compile(r"!torch\.vtensor<\[[\d,]*\],(?!unk)")


def _require_ranks(graph: onnx.GraphProto) -> None:
    """Raises LoweringError for a value of unknown rank, which the importer would take for a scalar."""
    unknown = {
        value.name for value in (*graph.value_info, *graph.output)
        if value.type.WhichOneof("value") == "tensor_type" and not value.type.tensor_type.HasField("shape")
    }
    for node in graph.node if unknown else ():
        if not unknown.isdisjoint(node.output):
            reason = "the rank of its result is not known when compiling; expected operands of known extents and axes"
            raise LoweringError(reason, node.name, node.op_type)


def _with_constants(model: OnnxModel, parameters: list[str]) -> onnx.ModelProto:
    """The model with its constants: as initializers, or as inputs after all others for `parameters`."""
    import onnx

    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    chosen = set(parameters)
    for name, array in model.constants.items():
        if name not in chosen:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
    for name in parameters:
        kind = onnx.helper.np_dtype_to_tensor_dtype(model.constants[name].dtype)
        proto.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, model.constants[name].shape))
    return proto


def _import(proto: onnx.ModelProto, context: ir.Context) -> ir.Module:
    importer = onnx_importer()
    try:
        info = importer.ModelInfo(proto)
        module = info.create_module(context)
        cache = _constant_cache(importer)(context)
        node_importer = importer.NodeImporter.define_function(info.main_graph, module.operation, context_cache=cache)
        node_importer.import_all()
    except (importer.OnnxImportError, ValueError, RuntimeError, TypeError, KeyError) as error:
        # For many malformed nodes the importer raises generic exceptions.
        raise LoweringError(str(error).strip().splitlines()[0] if str(error) else type(error).__name__) from error
    return module


def _constant_cache(importer: Any) -> Any:
    """The importer's cache, with constants as plain dense elements, which upstream's folders can read."""
    import onnx

    class ConstantCache(importer.ContextCache):  # type: ignore[misc]
        def tensor_proto_to_attr(self, proto: onnx.TensorProto) -> ir.Attribute:
            try:
                array = np.asarray(onnx.numpy_helper.to_array(proto), order="C")
            except (TypeError, ValueError):
                return super().tensor_proto_to_attr(proto)
            if array.dtype.name not in _PLAIN or array.size == 0:
                return super().tensor_proto_to_attr(proto)
            tensor_type = self.tensor_proto_to_builtin_type(proto)
            if array.dtype.name == "bfloat16":
                array = array.view(np.uint16)
            element = tensor_type.element_type
            with self._c:
                return ir.DenseElementsAttr.get(array, type=element, shape=list(proto.dims))

    return ConstantCache


_PLAIN = frozenset({
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64",
})  # fmt: skip


def explain(model: OnnxModel, error: ir.MLIRError) -> LoweringError:
    """Finds the node of an MLIR diagnostic by its location, which carries the node's name."""
    nodes = {node.name: node.op_type for node in all_nodes(model.proto.graph)}
    for diagnostic in _flatten(error.error_diagnostics):
        for name in _quoted(str(diagnostic.location)):
            if name in nodes:
                return LoweringError(_first_line(diagnostic.message), name, nodes[name])
    messages = [diagnostic.message for diagnostic in error.error_diagnostics]
    text = _first_line(messages[0] if messages else str(error))
    name = next((name for name in _quoted(text) if name in nodes), "")  # some errors have no location
    return LoweringError(_LOCATED.sub("", text), name, nodes.get(name, ""))


_LOCATED = re.compile(r'^error: (?:fused<"[^"]*">\[[^]]*\]|"[^"]*"(?:\([^)]*\))?): ')


def _flatten(diagnostics: Iterable[Any]) -> Iterable[Any]:
    for diagnostic in diagnostics:
        yield diagnostic
        yield from _flatten(diagnostic.notes)


def _quoted(text: str) -> list[str]:
    return text.split('"')[1::2]


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
