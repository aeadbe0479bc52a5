"""Reads ONNX models into programs.

The function is named `main`, whatever the graph's name. Its arguments are the model's inputs in order (those without an
initializer), then large constants as parameters. A model is converted to another operator set only if an operator has
no lowering in the model's own. Large initializers never pass through text: they leave the graph as arrays, mapped from
the file if possible.

Steps: `model.py` reads; `well_formed.py` sorts nodes, and refuses models that break ONNX's rules, with
`attribute_values.py`; `domains.py` rewrites operators of other domains; `unsupported.py` refuses unsupported operators
and types; `short_types.py` stores 8-bit floats and the like as bytes; `assert_demands.py` asserts what operators demand
of extents, also nodes that `simplify.py` drops when it folds constants; `sequences.py` resolves sequences;
`rewrites.py` and its rules rewrite what torch-mlir lacks or lowers wrongly; `mlir_import.py` lowers to linalg,
with `defined_operators.py` on the way; `states.py` keeps the state of models that have some.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from motet.artifact.validation import MAXIMUM_RANK
from motet.compiler.frontends.onnx.appended import give_room
from motet.compiler.frontends.onnx.assert_demands import demand_extents, simplify_asserted
from motet.compiler.frontends.onnx.bodies import all_nodes
from motet.compiler.frontends.onnx.data import DataFiles
from motet.compiler.frontends.onnx.domains import reason, strip_zip_maps, write_domains
from motet.compiler.frontends.onnx.expanded_operands import read_in_place, settle_stretches
from motet.compiler.frontends.onnx.functions import inlined, name_within
from motet.compiler.frontends.onnx.interface import give_sequences, parse_sequences
from motet.compiler.frontends.onnx.mlir_import import Lowered, LoweringError, explain, lower
from motet.compiler.frontends.onnx.model import ExtentBound, OnnxModel
from motet.compiler.frontends.onnx.optionals import resolve_optionals
from motet.compiler.frontends.onnx.reading import TOO_DEEP, is_too_deep, read_model
from motet.compiler.frontends.onnx.sequences import resolve_sequences
from motet.compiler.frontends.onnx.short_types import store_short_types
from motet.compiler.frontends.onnx.simplify import fold_constants, simplify
from motet.compiler.frontends.onnx.states import keep_states
from motet.compiler.frontends.onnx.torch_operands import assert_that, write
from motet.compiler.frontends.onnx.unsupported import refuse_large, refuse_operands, refuse_outside, refuse_unknown
from motet.compiler.frontends.onnx.well_formed import UNREADABLE, check_graph, label, refuse_growth, refuse_recursion
from motet.compiler.frontends.onnx.writing import element_types, static_shapes
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.attributes import integer_constant
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import DIMS, NAME, PARAMETER, Program, show_elements, show_unsigned
from motet.compiler.ir.sizes import extent_of
from motet.compiler.passes.running import run_named
from motet.compiler.protobuf import Content
from motet.errors import CompileError

if TYPE_CHECKING:
    import onnx

FUNCTION = "main"
PREVIEWED = ("FlexAttention",)  # of the domain 'ai.onnx.preview'
_REFUSES_ZERO = "unimplemented: tensor with zero element"
_LAST_OPSET = (1 << 31) - 1
_MOST_ELEMENTS = 1 << 44  # of an input or an output
CONVERTED_OPSET = 21  # the operator set that torch-mlir covers best


def load_onnx(
    data: Content | Path, file: str, files: DataFiles | None = None, sequences: str = ""
) -> Program:
    """Reads an ONNX model, from bytes or a path, into a program with one public function `main`.

    `file` is the model's name in errors; `files` gives external data that is not next to the path. Raises CompileError
    for a file that is not an ONNX model or is damaged, for operators and types that are unknown or have no lowering,
    and for missing external data.
    """
    return load_model(read_model(data, file, files), sequences)


def load_model(model: OnnxModel, sequences: str = "") -> Program:
    """Lowers a model into a program with one public function `main`. Raises CompileError as `load_onnx`."""
    try:
        return _load(model, sequences)
    except UNREADABLE as error:
        raise model.error(
            f"the model cannot be read: {type(error).__name__}: {error}; expected one that onnx.checker accepts"
        ) from error
    except MemoryError as error:
        raise model.error(
            f"compiling the model takes more memory than this process has ({error}); expected smaller extents"
        ) from error


def _load(model: OnnxModel, sequences: str) -> Program:
    named = frozenset(node.name for node in model.proto.graph.node if node.name)
    strip_zip_maps(model)
    give_sequences(model, parse_sequences(sequences))
    resolve_optionals(model)
    check_types(model)
    refuse_recursion(model)
    refuse_growth(model)
    inline_functions(model)
    check_graph(model)
    write_domains(model)
    check_operators(model)
    store_short_types(model)
    refuse_outside(model)  # onnx's evaluator takes such indices modulo the extent
    fold_constants(model)  # inference would take the value of a Slice with computed bounds to be its operand's
    demand_extents(model)
    simplify_asserted(model)
    resolve_sequences(model)
    refuse_unknown(model)
    refuse_large(model)
    refuse_operands(model)
    refuse_outside(model)
    lowered = _lower_or_convert(model)
    try:
        finish(model, lowered)
    except ir.MLIRError as error:  # the lowering produced invalid code, which only a later pass detects
        raise _lowering_failed(model, explain(model, error)) from error
    keep_states(lowered.module, model)
    parameters = {name: model.constants[name] for name in lowered.parameters}
    program = Program(lowered.module, parameters, file=model.file, named=named)
    if model.states:
        with program.module.context, ir.Location.unknown():
            run_named("read-devices", program)  # resolves states
    return program


def check_types(model: OnnxModel) -> None:
    """Checks that inputs are tensors of numbers, and outputs such tensors or sequences of them."""
    import onnx

    graph = model.proto.graph
    for domain, version in model.opsets.items():
        if not 0 < version <= _LAST_OPSET:
            raise model.error(f"operator set {version} of domain {domain or 'ai.onnx'!r} does not exist")
    for role, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            kind = value.type.WhichOneof("value")
            if kind is None and role == "output":
                continue  # left to shape inference
            if kind == "sequence_type" and role == "output":
                kind, tensor = "tensor_type", value.type.sequence_type.elem_type.tensor_type
            else:
                tensor = value.type.tensor_type
            if kind != "tensor_type":
                found = (kind or "no type").removesuffix("_type").replace("_", " ")
                raise model.error(f"{role} {value.name!r}: expected a tensor, it is of type {found}")
            if (rank := len(tensor.shape.dim)) > MAXIMUM_RANK:
                raise model.error(f"{role} {value.name!r}: {rank} axes; expected at most {MAXIMUM_RANK}")
            element = tensor.elem_type
            if element == onnx.TensorProto.STRING:
                raise model.error(f"{role} {value.name!r}: tensors of strings are not supported; expected numbers")
            if element not in onnx.TensorProto.DataType.values() or (role == "input" and not element):
                raise model.error(f"{role} {value.name!r}: element type {element}; expected one that ONNX has")
            extents = [dim.dim_value for dim in tensor.shape.dim]
            if min(extents, default=0) < 0 or math.prod(max(1, extent) for extent in extents) > _MOST_ELEMENTS:
                raise model.error(f"{role} {value.name!r}: extents {extents}; expected none below 0, and at most "
                                  f"{_MOST_ELEMENTS:,} elements")
            if role == "input" and not value.type.tensor_type.HasField("shape"):
                raise model.error(
                    f"input {value.name!r}: its rank is unknown; expected a shape, with names for dynamic extents"
                )


def inline_functions(model: OnnxModel) -> None:
    """Inlines the functions that the model defines."""
    import onnx
    from google.protobuf.message import DecodeError

    if not model.proto.functions:
        return
    for function in model.proto.functions:
        _relabel(function, model.opsets.get("", 0))
    _copy_for_calls(model)
    try:
        model.proto = inlined(model, convert_version=True)
    except (RuntimeError, ValueError, onnx.checker.ValidationError, DecodeError) as error:
        if is_too_deep(error):
            raise model.error(f"with its functions inlined, {TOO_DEEP}") from error
        said = str(error).rpartition("failed: ")[2]  # after the position in the inliner's source
        raise model.error(
            f"its functions cannot be inlined: {said}; expected functions of the model's own operator sets"
        ) from error


def _copy_for_calls(model: OnnxModel) -> None:
    """Gives each named call in the main graph its own copy of the function, with nodes named after the call."""
    known = {(function.domain, function.name): function for function in model.proto.functions}
    for number, node in enumerate(model.proto.graph.node):
        function = known.get((node.domain, node.op_type))
        if function is not None and node.name:
            own = model.proto.functions.add()
            own.CopyFrom(function)
            own.name = node.op_type = f"{function.name}.{number}"
            name_within(own, node.name)


def _relabel(function: onnx.FunctionProto, version: int) -> None:
    """Makes `function` import operator set `version` of ONNX if its operators are the same in both sets. onnx's
    conversion would need types that not every model has."""

    for entry in function.opset_import:
        used = {node.op_type for node in all_nodes(function) if node.domain in ("", "ai.onnx")}
        if entry.domain in ("", "ai.onnx") and all(_unchanged(name, entry.version, version) for name in used):
            entry.version = version


def _unchanged(operator: str, one: int, other: int) -> bool:
    import onnx

    try:
        first, second = (onnx.defs.get_schema(operator, version) for version in (one, other))
    except onnx.defs.SchemaError:
        return False
    return first.since_version == second.since_version


def check_operators(model: OnnxModel) -> None:
    """Checks that every operator exists in the operator set that the model imports."""
    import onnx

    opsets = model.opsets
    newest = onnx.defs.onnx_opset_version()
    if opsets.get("", 0) > newest:
        raise model.error(
            f"operator set {opsets['']} is newer than the installed onnx knows (up to {newest});"
            " upgrade the package onnx"
        )
    for node in all_nodes(model.proto.graph):
        domain = "" if node.domain == "ai.onnx" else node.domain
        where = label(node)
        if domain not in opsets:
            known = ", ".join(repr(name or "ai.onnx") for name in sorted(opsets))
            raise model.error(
                f"{where}: operator {node.op_type} is of domain {domain or 'ai.onnx'!r}, "
                f"which the model does not import; imported: {known}"
            )
        known = onnx.defs.has(node.op_type, opsets[domain], domain)
        if domain == "ai.onnx.preview" and known and node.op_type in PREVIEWED:
            continue
        if domain and known:
            raise model.error(
                f"{where}: operator {node.op_type} of domain {domain!r} is not supported: {reason(node)}"
            )
        if not known:
            raise model.error(
                f"{where}: unknown operator {node.op_type} (domain {domain or 'ai.onnx'!r}, "
                f"operator set {opsets[domain]}){_since(node.op_type, domain)}"
            )


def _since(operator: str, domain: str) -> str:
    """In which operator set the operator exists, for the error about its absence."""
    import onnx

    if onnx.defs.has(operator, domain):
        version = onnx.defs.get_schema(operator, domain=domain).since_version
        return f"; it is known with operator set {version}"
    return "; expected an operator of ONNX, or a function that the model defines"


def _lower_or_convert(model: OnnxModel) -> Lowered:
    """Lowers at the model's own operator set, else after conversion to `CONVERTED_OPSET`; reports the first failure."""
    try:
        return lower(model)
    except LoweringError as error:
        converted = _converted(model)
        if converted is None:
            raise _lowering_failed(model, error) from error
        try:
            simplify(converted)
            lowered = lower(converted)
        except (LoweringError, CompileError):
            raise _lowering_failed(model, error) from error
        model.proto, model.constants = converted.proto, converted.constants
        return lowered


def _converted(model: OnnxModel) -> OnnxModel | None:
    import onnx
    import onnx.version_converter

    if model.opsets.get("") in (None, CONVERTED_OPSET):
        return None
    # Constants are passed as inputs, so that the converter neither copies nor changes them.
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    given = [value.name for value in proto.graph.input]
    for name, array in model.constants.items():
        if array.nbytes <= 4096:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        proto.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    try:
        proto = onnx.version_converter.convert_version(proto, CONVERTED_OPSET)
    except (RuntimeError, ValueError, onnx.version_converter.ConvertError):
        return None  # the converter lacks some operators, and sparse tensors
    constants = dict(model.constants)
    constants.update({tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer})
    del proto.graph.initializer[:]
    inputs = [value for value in proto.graph.input if value.name in given]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    return replace(model, proto=proto, constants=constants)


def _lowering_failed(model: OnnxModel, error: LoweringError) -> CompileError:
    version = model.opsets.get("", 0)
    if not error.node:
        operators = ", ".join(sorted({node.op_type for node in model.proto.graph.node}))
        return model.error(
            f"an operator has no lowering (operator set {version}){_reason(error.reason)}; there are {operators}"
        )
    return model.error(
        f"node {error.node!r}: operator {error.operator} (operator set {version}) has no lowering for "
        f"{_form(model, error.node)}{_reason(error.reason)}"
    )


def _form(model: OnnxModel, name: str) -> str:
    """The types of a node's inputs and its attributes."""
    import onnx

    node = next((node for node in all_nodes(model.proto.graph) if node.name == name), None)
    if node is None:
        return "its types, shapes and attributes"
    types, shapes = element_types(model), static_shapes(model)
    inputs = [
        f"{onnx.TensorProto.DataType.Name(types[value]).lower()}{list(shapes[value]) if value in shapes else ''}"
        for value in node.input if value in types
    ]
    attributes = [
        f"{item.name}={value.decode() if isinstance(value, bytes) else value}" for item in node.attribute
        if isinstance(value := onnx.helper.get_attribute_value(item), int | float | bytes | list)
    ]
    said = f" with {', '.join(attributes)}" if attributes else ""
    return f"inputs of {', '.join(inputs)}{said}"


def _reason(text: str) -> str:
    """MLIR's message, unless it only says that there is no lowering."""
    return "" if text.startswith("failed to legalize operation 'torch") else f": {text}"


def finish(model: OnnxModel, lowered: Lowered) -> None:
    """Names the function, its arguments, results and dynamic extents; cleans up after the lowering."""
    module = lowered.module
    function = next(op for op in module.body.operations if op.operation.name == "func.func")
    graph = model.proto.graph
    inputs = [value for value in graph.input if value.name not in model.constants]
    with module.context:
        for name in list(function.attributes):
            if name not in ("sym_name", "function_type", "sym_visibility"):
                del function.attributes[name]
        function.attributes["sym_name"] = ir.StringAttr.get(FUNCTION)
        arguments = [ir.DictAttr.get(_input_attributes(value)) for value in inputs]
        arguments += [
            ir.DictAttr.get({PARAMETER: ir.StringAttr.get(name), NAME: ir.StringAttr.get(name)})
            for name in lowered.parameters
        ]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(arguments)
        function.attributes["res_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get({NAME: ir.StringAttr.get(value.name)}) for value in graph.output]
        )
        show_unsigned(function.operation, _unsigned(inputs, model), _unsigned(graph.output, model))
        show_elements(
            function.operation, [model.elements.get(value.name, "") for value in inputs],
            [model.elements.get(value.name, "") for value in graph.output],
        )  # fmt: skip
        _assert_bounds(function.operation, model.bounds)
    _clean_up(module)


def _clean_up(module: ir.Module) -> None:
    """Simplifies the module and removes its assertions that divisors are not zero: 1/0 must be an infinity."""
    for operation in find_operations(module, "cf.assert"):
        if ir.StringAttr(operation.attributes["msg"]).value == _REFUSES_ZERO:
            operation.erase()
    _settle_batches(module)
    with module.context, ir.Location.unknown():
        give_room(module)
    for function in public_functions(module):
        settle_stretches(function)
    run_pipeline(module, "canonicalize,cse")
    for function in public_functions(module):
        read_in_place(function)
    run_pipeline(module, "canonicalize,cse,symbol-dce", verify_each=False)


def _settle_batches(module: ir.Module) -> None:
    """Makes the extent to which products broadcast a batch axis of 1 that of the other operand, which may be 0: the
    lowering writes the larger of both."""
    for operation in find_operations(module, "arith.maxui"):
        if isinstance(operation.results[0].type, ir.IndexType) and integer_constant(operation.operands[1]) == 1:
            operation.results[0].replace_all_uses_with(operation.operands[0])
            operation.erase()


def _assert_bounds(function: ir.Operation, bounds: Sequence[ExtentBound]) -> None:
    """Begins `function`, whose arguments are named, with assertions of `bounds`. Known extents need none."""
    block = function.regions[0].blocks[0]
    named = [ir.StringAttr(ir.DictAttr(each)[NAME]).value for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    for bound in bounds:
        argument = block.arguments[named.index(bound.input)]
        if not ir.RankedTensorType(argument.type).is_dynamic_dim(bound.axis):
            continue
        place = ir.Location.fused([ir.Location.name(bound.input)], ir.StringAttr.get("input"))
        with ir.InsertionPoint.at_block_begin(block), place:
            extent = extent_of(argument, bound.axis)
            if bound.least > 0:
                assert_that(write("<=", bound.least, extent), f"axis {bound.axis} must be at least {bound.least}")
            if bound.most is not None:
                assert_that(write("<=", extent, bound.most), f"axis {bound.axis} must be at most {bound.most}")


def _unsigned(values: Iterable[onnx.ValueInfoProto], model: OnnxModel) -> list[int]:
    """The numbers of those `values` that hold unsigned integers and not the bytes of other elements."""
    import onnx

    kinds = (onnx.TensorProto.UINT8, onnx.TensorProto.UINT16, onnx.TensorProto.UINT32, onnx.TensorProto.UINT64)
    return [
        number for number, value in enumerate(values)
        if value.type.tensor_type.elem_type in kinds and value.name not in model.elements
    ]


def _input_attributes(value: onnx.ValueInfoProto) -> dict[str, ir.Attribute]:
    """The name of an input and of its dynamic extents; an unnamed extent gets a unique name."""
    attributes: dict[str, ir.Attribute] = {NAME: ir.StringAttr.get(value.name)}
    dims = value.type.tensor_type.shape.dim
    if any(not dim.HasField("dim_value") for dim in dims):
        names = [
            "" if dim.HasField("dim_value") else dim.dim_param or f"{value.name}.{axis}"
            for axis, dim in enumerate(dims)
        ]
        attributes[DIMS] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names])
    return attributes
