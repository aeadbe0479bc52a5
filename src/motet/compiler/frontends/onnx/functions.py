"""Expands ONNX operators that are defined as functions of simpler operators.

ONNX specifies many operators (Attention, GroupNormalization, the losses) by a function body. An operator without its
own lowering is replaced by its body, whose constants then fold like all others.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any

from motet.compiler.frontends.onnx.bodies import each_body
from motet.compiler.frontends.onnx.model import OnnxModel

if TYPE_CHECKING:
    import onnx

DOMAIN = "motet.expanded"


def has_function(operator: str, version: int) -> bool:
    """Whether `operator` of the default domain has a function body at operator set `version`."""
    import onnx

    if not onnx.defs.has(operator, version):
        return False
    schema: Any = onnx.defs.get_schema(operator, max_inclusive_version=version)
    versions = [*schema.function_opset_versions, *schema.context_dependent_function_opset_versions]
    return any(known <= version for known in versions)


def expand_functions(model: OnnxModel, operators: Set[str]) -> bool:
    """Replaces every node, in bodies too, whose operator is in `operators` by its function body; returns whether any
    was replaced.

    Needs inferred types: the bodies of some operators depend on them.
    """
    import onnx

    functions: list[onnx.FunctionProto] = []
    _call_functions(model, operators, functions)
    if functions:
        model.proto.functions.extend(functions)
        model.proto.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
        model.proto = inlined(model)
        kept = [entry for entry in model.proto.opset_import if entry.domain != DOMAIN]
        del model.proto.opset_import[:]
        model.proto.opset_import.extend(kept)
    return bool(functions)


def _call_functions(model: OnnxModel, operators: Set[str], functions: list[onnx.FunctionProto]) -> None:
    """Makes the nodes calls of functions, which are added to `functions`."""
    version = model.opsets.get("", 0)
    for node in model.proto.graph.node:
        if node.domain not in ("", "ai.onnx") or node.op_type not in operators:
            continue
        function = _specialized(model, node, version)
        if function is None:
            continue
        function.name = f"{node.op_type}_{len(functions)}"
        function.domain = DOMAIN
        name_within(function, node.name)
        functions.append(function)
        node.op_type, node.domain = function.name, DOMAIN
    each_body(model, lambda inside: _call_functions(inside, operators, functions))


def inlined(model: OnnxModel, convert_version: bool = False) -> onnx.ModelProto:
    """The model with calls of functions replaced by their nodes, which keep their names. Raises RuntimeError,
    ValueError as onnx's inliner."""
    import onnx.inliner

    before = {node.name for node in model.proto.graph.node}
    # The inliner is to name no value of a body as a constant is named, or another value whose type is noted.
    taken = {*model.constants, *(value.name for value in model.proto.graph.value_info)}
    model.proto.graph.initializer.extend(onnx.TensorProto(name=name) for name in sorted(taken))
    found = onnx.inliner.inline_local_functions(model.proto, convert_version=convert_version)
    del model.proto.graph.initializer[:], found.graph.initializer[:]
    for node in found.graph.node:
        if node.name not in before:
            node.name = node.name.rpartition("__")[0] or node.name  # the inliner appends a number
    return found


def name_within(function: onnx.FunctionProto, name: str) -> None:
    """Names the nodes of a function after the only node that calls it."""
    for number, node in enumerate(function.node if name else ()):
        node.name = f"{name}/{node.name or f'{node.op_type}{number}'}"


def _specialized(model: OnnxModel, node: onnx.NodeProto, version: int) -> onnx.FunctionProto | None:
    """The function body of `node`'s operator for its types and attributes; None if there is none.

    Sets attributes that the node omits to their defaults, on the node.
    """
    import onnx

    if not has_function(node.op_type, version):
        return None
    schema: Any = onnx.defs.get_schema(node.op_type, max_inclusive_version=version)
    present = {item.name for item in node.attribute}
    for name, declared in schema.attributes.items():
        if name not in present and declared.default_value.name:
            node.attribute.append(declared.default_value)
    plain = [known for known in schema.function_opset_versions if known <= version]
    dependent = [known for known in schema.context_dependent_function_opset_versions if known <= version]
    if plain and (not dependent or max(dependent) < max(plain)):
        serialized = schema.get_function_with_opset_version(max(plain))
    else:
        types = _types(model)
        inputs = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        serialized = schema.get_context_dependent_function_with_opset_version(
            max(dependent), node.SerializeToString(), inputs
        )
    if not serialized:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(serialized)
    del function.attribute[:], function.attribute_proto[:]
    function.attribute.extend(schema.attributes)
    for entry in function.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = version
    return function


def _types(model: OnnxModel) -> dict[str, onnx.TypeProto]:
    import onnx

    graph = model.proto.graph
    types = {info.name: info.type for info in (*graph.input, *graph.value_info, *graph.output)}
    for name, array in model.constants.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        types[name] = onnx.helper.make_tensor_type_proto(kind, array.shape)
    return types
