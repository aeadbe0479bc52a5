"""Reads programs in the `torch` dialect, as `motet.pytorch.export` writes them, and lowers them by torch-mlir."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec
import numpy as np

from motet.compiler.frontends.exact_equality import exact_equality
from motet.compiler.frontends.exact_extrema import exact_extrema
from motet.compiler.frontends.locations import compile_error, locate
from motet.compiler.frontends.mlir import parse_module
from motet.compiler.frontends.torch import blocks, grids, regions, resizing, searches
from motet.compiler.frontends.torch.extents import settle_extents
from motet.compiler.frontends.torch.grouped_convolutions import settle_grouped_convolutions
from motet.compiler.frontends.torch.guards import assert_guards
from motet.compiler.frontends.torch.layers import lower_layers
from motet.compiler.frontends.torch.numbers import lower_numbers
from motet.compiler.frontends.torch.operands import lower_operators
from motet.compiler.frontends.torch.pads import settle_pads
from motet.compiler.frontends.torch.to_linalg import to_linalg
from motet.compiler.frontends.torch.views import settle_views
from motet.compiler.frontends.unsigned_results import return_signed_constants
from motet.compiler.ir._mlir import ir, new_context, register_torch_dialect, run_pipeline
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.program import DIMS, NAME, OF_EXTENTS, PARAMETER, Program, show_unsigned, unsigned
from motet.compiler.ir.source_names import keep_operators, names_of
from motet.decoding import decode_json
from motet.errors import CompileError, Location
from motet.pytorch.interface import Interface

_TO_TORCH = "torchdynamo-export-to-torch-backend-pipeline{backend-legal-ops=aten.flatten.using_ints,aten.unflatten.int}"


def load_torch(text: str, interface: str, parameters: Mapping[str, np.ndarray], file: str) -> Program:
    """The program of `text`, whose arguments `interface` (JSON of `Interface`) names.

    Raises CompileError with the line of the user's Python code whose operator has no lowering.
    """
    try:
        known = decode_json(interface, Interface)
    except msgspec.MsgspecError as error:
        raise CompileError(f"not a program of motet.pytorch: {error}", Location(file)) from None
    context = new_context()
    register_torch_dialect(context)
    module, data = parse_module(text, file, context)
    lower_numbers(module)
    lower_layers(module)
    lower_operators(module, {**resizing.RULES, **grids.RULES, **regions.RULES, **blocks.RULES, **searches.RULES})
    _refuse_unknown(module, file)
    kinds = ir.FunctionType(ir.TypeAttr(module.body.operations[0].operation.attributes["function_type"]).value)
    without_sign = unsigned(kinds.inputs), unsigned(kinds.results)
    try:
        with context, ir.Location.unknown():
            _forget_devices(module)
            keep_operators(module, ("torch.aten.", "torch.prims."))
            exact_equality(module)
            run_pipeline(module, _TO_TORCH)
            settle_pads(module)
            settle_grouped_convolutions(module)
            settle_views(module)
            settle_extents(module)
            return_signed_constants(module)
            to_linalg(module)
            exact_extrema(module)
            _drop_assertions(module)
    except ir.MLIRError as error:
        raise _without_lowering(error, file) from None
    function = module.body.operations[0].operation
    _name_interface(function, known)
    assert_guards(function, known.guards, file)
    with context:
        show_unsigned(function, *without_sign)
    return Program(module, parameters, file=file, resources=data)


def _refuse_unknown(module: ir.Module, file: str) -> None:
    """Refuses operators unknown to torch-mlir, which imports them as `torch.operator`."""
    found = find_operations(module, "torch.operator")
    if found:
        raise _no_lowering(ir.StringAttr(found[0].attributes["name"]).value, found[0].location, file)


def _forget_devices(module: ir.Module) -> None:
    """Removes the devices that the program was traced on: the lowering only supports the CPU, and not all operators
    that create tensors elsewhere. They do not determine where the compiled program runs."""
    for op in find_operations(module, "torch.constant.device"):
        op.attributes["value"] = ir.StringAttr.get("cpu")


def _without_lowering(error: ir.MLIRError, file: str) -> CompileError:
    """Says where no lowering is; what the wheel's passes say of their own operations helps no user."""
    for diagnostic in error.error_diagnostics:
        if "failed to legalize operation" in diagnostic.message:
            return _no_lowering(diagnostic.message.split("'")[1], diagnostic.location, file)
    logging.getLogger("motet").debug("torch-mlir: %s", error)
    return _no_lowering("", error.error_diagnostics[0].location, file) if error.error_diagnostics else (
        compile_error(error, file)
    )


def _no_lowering(operator: str, location: ir.Location, file: str) -> CompileError:
    name, module = operator.removeprefix("torch."), next(names_of(location), "")
    if not name.startswith(("aten.", "prims.")):  # an operand, or part, of the operator without a lowering
        name = "the operator at this place"
    if "." in module:  # else the name of a value
        name += f" in module {module}"
    return CompileError(
        f"{name}: this operator of PyTorch, with its types here, has no lowering to linalg; "
        "rewrite the model with other operators", locate(location) or Location(file),
    )


def _drop_assertions(module: ir.Module) -> None:
    """Removes superfluous assertions of the lowering: 1/0 is an infinity here, and torch.export has proven that shapes
    agree for all extents of equal names, which every call is checked for."""
    for op in find_operations(module, "cf.assert"):
        if OF_EXTENTS not in op.attributes:
            op.erase()
    run_pipeline(module, "canonicalize,cse")


def _name_interface(function: ir.Operation, known: Interface) -> None:
    with function.context:
        arguments: list[ir.Attribute] = []
        for name, dims in zip(known.inputs, known.dims, strict=True):
            attributes: dict[str, ir.Attribute] = {NAME: ir.StringAttr.get(name)}
            if any(dims):
                attributes[DIMS] = ir.ArrayAttr.get([ir.StringAttr.get(dim) for dim in dims])
            arguments.append(ir.DictAttr.get(attributes))
        for key in known.parameters:
            arguments.append(ir.DictAttr.get({PARAMETER: ir.StringAttr.get(key), NAME: ir.StringAttr.get(key)}))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(arguments)
        results = [ir.DictAttr.get({NAME: ir.StringAttr.get(name)}) for name in known.results]
        function.attributes["res_attrs"] = ir.ArrayAttr.get(results)
