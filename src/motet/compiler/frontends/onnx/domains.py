"""Writes operators of other domains with operators of ONNX's own domain.

    y = com.microsoft.FusedMatMul[transB=1](a, b)        →  t = Transpose(b); y = MatMul(a, t)
    r = ai.onnx.ml.LinearRegressor[coefficients](x)      →  m = MatMul(x, c); r = Add(m, i)

The domains are `ai.onnx.ml` (scikit-learn's models), `com.microsoft` (onnxruntime's optimiser and quantiser, which
sometimes name ONNX's own domain for their operators) and `ai.onnx.preview.training`. Types are inferred again where an
operator needs the type of another rewritten operator's result.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from motet.compiler.frontends.onnx import (
    contrib,
    contrib_attention,
    contrib_gathers,
    contrib_quantised,
    ml,
    ml_trees,
    ml_vectors,
    training,
)
from motet.compiler.frontends.onnx.bodies import all_nodes, each_body, separate_bodies
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.simplify import infer_shapes, name_nodes
from motet.compiler.frontends.onnx.writing import ModelFacts, Rule, replace_nodes

if TYPE_CHECKING:
    import onnx

_log = logging.getLogger("motet")
_OPSET = 21  # of the default domain, for models that do not import it
_RULES: dict[str, dict[str, Rule]] = {
    "ai.onnx.ml": {**ml.RULES, **ml_trees.RULES, **ml_vectors.RULES},
    "ai.onnx.preview.training": training.RULES,
    "com.microsoft": {
        **contrib.RULES, **contrib_attention.RULES, **contrib_gathers.RULES, **contrib_quantised.RULES,
    },
}
# Why an operator has no rule.
_REFUSED = {
    "CategoryMapper": "it maps strings", "DictVectorizer": "there are no maps; expected a tensor of features",
    "Gradient": "it is of other nodes; write the gradient with operators, as exporters of training graphs do",
    "CastMap": "there are no maps; expected a tensor of features",
}  # fmt: skip


def strip_zip_maps(model: OnnxModel) -> None:
    """Replaces ZipMap, which only names columns, by Identity, in place. Warns that the result is a tensor."""
    graph = model.proto.graph
    results = {value.name: value for value in graph.output}
    for node in graph.node:
        if node.domain != "ai.onnx.ml" or node.op_type != "ZipMap":
            continue
        _log.warning(
            "%s: %r is a tensor, not a list of maps: ZipMap %r is left out; convert with options={'zipmap': False} to "
            "have this written in the model", model.file, node.output[0], node.name,
        )  # fmt: skip
        if node.output[0] in results:
            results[node.output[0]].type.Clear()
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]


def write_domains(model: OnnxModel) -> None:
    """Rewrites the graph of `model` and its bodies in place. Raises CompileError for unsupported forms."""
    if "" not in model.opsets:
        model.proto.opset_import.add(domain="", version=_OPSET)
    if not any(_rule(node, model) for node in all_nodes(model.proto.graph)):
        return
    for output in model.proto.graph.output:  # converters often declare wrong extents
        output.type.tensor_type.ClearField("shape")
    name_nodes(model)
    separate_bodies(model)
    _write(model)


def _write(model: OnnxModel) -> None:
    left = _count(model)
    while left:
        infer_shapes(model)
        _round(model)
        before, left = left, _count(model)
        if left == before:
            node = next(node for node in model.proto.graph.node if _rule(node, model))
            raise model.error(
                f"node {node.name!r}: the types or ranks of the inputs of {node.op_type} are not known; expected a "
                "model whose value_info has them (onnx.shape_inference)"
            )
    each_body(model, _write)


def _count(model: OnnxModel) -> int:
    return sum(1 for node in model.proto.graph.node if _rule(node, model))


def _round(model: OnnxModel) -> None:
    """Rewrites every node whose inputs' types are known."""
    facts = ModelFacts.of(model)
    nodes: list[onnx.NodeProto] = []
    for node in model.proto.graph.node:
        rule = _rule(node, model)
        known = rule is not None and all(not name or facts.types.get(name) for name in node.input)
        made = rule(node, facts) if rule is not None and known else None
        nodes += [node] if made is None else made
    replace_nodes(model, nodes)


def _rule(node: onnx.NodeProto, model: OnnxModel) -> Rule | None:
    """The rule of `node`; None for operators of ONNX's domain and those without a rule."""
    import onnx

    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain:
        return _RULES.get(domain, {}).get(node.op_type)
    if onnx.defs.has(node.op_type, model.opsets.get("", 0)):
        return None
    return _RULES["com.microsoft"].get(node.op_type)


def reason(node: onnx.NodeProto) -> str:
    """Why an operator of another domain is refused."""
    return _REFUSED.get(node.op_type, "expected operators of 'ai.onnx'")
