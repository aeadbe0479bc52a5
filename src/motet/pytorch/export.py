"""Exports PyTorch's programs to the compiler: modules with example inputs, and programs of torch.export.

torch.export traces the module, its operators are decomposed to those that torch-mlir lowers, and its graph becomes MLIR
in the `torch` dialect. Only this runs in the caller's process. The text and the parameters form a serialised program
(`motet/serialized.py`), which the compiler reads (`compiler/frontends/torch/loading.py`).
"""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportPrivateUsage=false

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_map

from motet.compiler.ir._mlir import fx_importer, ir, new_context, register_torch_dialect
from motet.errors import CompileError, Location, OptionError
from motet.pytorch import (
    adaptive_pools,
    decompositions,
    experts,
    fourier_forms,
    gradients,
    normalizations,
    orders,
    recurrences,
    resizing,
    searches,
    transformers,
    windows,
    writes,
)
from motet.pytorch.branches import settle_branches
from motet.pytorch.complexes import split_complexes
from motet.pytorch.dims import settle_dims
from motet.pytorch.extents import settle_extents, state_specialised
from motet.pytorch.factorisations import refuse_factorisations
from motet.pytorch.guards import read_guards
from motet.pytorch.interface import Guard, Interface
from motet.pytorch.kept import keep_whole
from motet.pytorch.nothing import make_nothing
from motet.pytorch.numbers import known_numbers
from motet.pytorch.places import called, find_place, paths_with_submodules, source_names
from motet.pytorch.selections import IndexByTensors, select_by_tensors
from motet.pytorch.unsigned import widen_unsigned
from motet.pytorch.views import settle_views
from motet.serialized import write_serialized

PARAMETER_BYTES = 4096  # floating-point constants of this size and more become parameters

_VIEWED: dict[torch.dtype, tuple[torch.dtype, np.dtype[Any]]] = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
    torch.float8_e4m3fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fnuz)),
    torch.float8_e5m2fnuz: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2fnuz)),
}  # types that numpy lacks are passed as integers of the same width
if hasattr(torch, "float8_e8m0fnu"):  # since PyTorch 2.7
    _VIEWED[torch.float8_e8m0fnu] = torch.uint8, np.dtype(ml_dtypes.float8_e8m0fnu)


def export_module(
    module: torch.nn.Module, inputs: Sequence[Any] | Mapping[str, Any], dynamic_shapes: Any = None
) -> bytes:
    """The serialised program of `module` called with tensors like `inputs`: in order, or by the names of forward's
    parameters. `dynamic_shapes` is torch.export's: the extents that differ from call to call.

    The current values of the module's parameters and buffers become constants of the program. Raises CompileError if
    torch.export cannot trace the module, if it changes its buffers or inputs, and for operators without lowering.
    """
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    args, kwargs = _on_their_own((args, kwargs))
    name = type(module).__name__
    try:
        program = _traced(module, args, kwargs, dynamic_shapes)
    except CompileError as error:
        raise CompileError(error.message, Location(name)) from None
    except Exception as error:  # the model's own code and torch may raise any
        raise CompileError(f"torch.export cannot trace the module: {_why_untraced(error)}", Location(name)) from error
    return serialize_program(program, name)


def _traced(module: torch.nn.Module, args: Any, kwargs: Any, dynamic_shapes: Any) -> ExportedProgram:
    """Traces the module; if tracing depends on numbers in buffers, with these numbers as constants."""
    with torch.no_grad(), keep_whole(), IndexByTensors(), warnings.catch_warnings():
        # Recurrent layers assign views of their weights in each call.
        warnings.filterwarnings("ignore", r"The tensor attributes? \S*_flat_weights\b")
        try:
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
        except Exception as error:  # one of torch.export's error classes is private
            if "data-dependent" not in str(error):
                raise
            first = error
        try:
            with known_numbers(module):
                return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
        except CompileError:
            raise
        except Exception:  # tracing depends on other numbers as well
            raise first from None


def _on_their_own(inputs: Any) -> Any:
    """Copies of views: torch.export would take extents of their bases for extents of the program; and of tensors given
    twice, which it would take for one input."""
    seen: set[int] = set()

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        is_new = id(value) not in seen
        seen.add(id(value))
        return value if is_new and not value._is_view() else value.clone()

    return tree_map(copied, inputs)


def serialize_archive(data: bytes, name: str) -> bytes:
    """The serialised form of a program in a file of torch.export.save. Raises CompileError for other archives."""
    try:
        program = torch.export.load(io.BytesIO(data))
    except Exception as error:  # torch has no specific error for archives that are not programs
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise CompileError(
            f"a zip archive that is no program of torch.export: {reason}; expected what torch.export.save wrote",
            Location(name),
        ) from None
    return serialize_program(program, name)


def serialize_program(program: ExportedProgram, name: str) -> bytes:
    """The serialised form of an exported program, named `name` in errors. Raises CompileError."""
    table = _decompositions()
    guards = read_guards(program, name)
    try:
        program = program.run_decompositions(table)
        if select_by_tensors(program.graph):
            program = program.run_decompositions(table)
    except RuntimeError as error:
        raise CompileError(f"its operators cannot be decomposed: {_first_line(error)}", Location(name)) from error
    state_specialised(program.graph)
    _forget_same(program)
    _refuse_changes(program, name)
    settle_branches(program.graph, table)
    split_complexes(program, table, name)
    refuse_factorisations(program.graph, name)
    widen_unsigned(program.graph, name)
    _refuse_extents_of_data(program, name)
    _refuse_chance(program, name)
    settle_extents(program.graph, name)
    make_nothing(program.graph)
    settle_views(program.graph)
    settle_dims(program.graph)
    _name_results(program)
    parameters: dict[str, np.ndarray] = {}
    context = new_context()
    register_torch_dialect(context)
    importer = fx_importer().FxImporter(context=context, hooks=_hooks(parameters))
    _name_locations(importer, context, program.graph)
    try:
        function = importer.import_program(program, func_name="main").operation
    except (NotImplementedError, AssertionError, TypeError, ValueError, KeyError) as error:
        # The importer raises generic exceptions for unknown operators.
        raise CompileError(f"the program cannot be imported: {_first_line(error)}", Location(name)) from error
    _take_arguments(function)
    text = importer.module.operation.get_asm(enable_debug_info=True)
    interface = msgspec.json.encode(_interface(program, list(parameters), guards)).decode()
    return write_serialized(text, parameters, interface)


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """torch-mlir's table of decompositions, with attention in the form that is compiled as one kernel, and with
    replacements for wrong lowerings."""
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table  # pyright: ignore

    own: dict[Any, Callable[..., Any]] = {
        torch.ops.aten.gelu.default: _gelu,
    }
    if hasattr(torch.ops.prims, "fma"):  # newer versions of torch decompose the steps of optimizers to it
        own[torch.ops.prims.fma.default] = _fma
    modules = (
        decompositions, normalizations, orders, writes, transformers, experts, fourier_forms, gradients, recurrences,
        resizing, windows, adaptive_pools, searches,
    )  # fmt: skip
    made = (module.decompositions() for module in modules)
    return {**get_decomposition_table(), **{key: value for table in made for key, value in table.items()}, **own}


def _gelu(x: Any, approximate: str = "none") -> Any:
    """GELU, with the tanh approximation as torch.nn.functional.gelu defines it; torch-mlir uses 0.797724 for √(2/π)."""
    if approximate != "tanh":
        return NotImplemented
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)
    return (0.5 * wide * (1 + torch.tanh(inner))).to(x.dtype)


def _fma(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def _forget_same(program: ExportedProgram) -> None:
    """Removes buffer updates that do not change the buffer, such as `self.table = self.table.to(device)`."""
    signature, output = program.graph_signature, program.graph.output_node()
    buffers = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target is not None}
    pairs = list(zip(output.args[0], signature.output_specs, strict=True))  # pyright: ignore
    kept = [
        (node, spec) for node, spec in pairs
        if spec.kind not in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
        or _origin(node).name != buffers.get(spec.target)
    ]
    if len(kept) < len(pairs):
        output.args = (tuple(node for node, _ in kept),)
        signature.output_specs[:] = [spec for _, spec in kept]


def _origin(node: Any) -> Any:
    """The node whose elements `node` has, looking through operators that do not change them."""
    same = ("aten.alias", "aten.detach", "aten.clone", "aten.lift_fresh_copy", "aten._to_copy")
    while node.op == "call_function" and str(node.target).rpartition(".")[0] in same:
        if node.meta["val"].dtype != node.args[0].meta["val"].dtype:
            break
        node = node.args[0]
    return node


def _refuse_changes(program: ExportedProgram, name: str) -> None:
    """Refuses programs that change buffers or inputs: a compiled program has no side effects."""
    for output in program.graph_signature.output_specs:
        if output.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            raise CompileError(
                f"the module changes its buffer {output.target}; expected one that changes none: "
                "call eval() before compiling, or pass what it changes as an input and return it", Location(name)
            )
        if output.kind == OutputKind.USER_INPUT_MUTATION:
            raise CompileError(
                f"the module changes its input {output.target} in place; expected one that returns it", Location(name)
            )


def _refuse_extents_of_data(program: ExportedProgram, name: str) -> None:
    """Refuses extents that depend on data: some have no lowering, and torch-mlir's lowering of others does not end."""
    for node in program.graph.nodes:
        found = node.meta.get("val")
        values = found if isinstance(found, (tuple, list)) else [found]
        if any(isinstance(value, torch.Tensor) and free_unbacked_symbols(value) for value in values):
            raise CompileError(
                f"{called(node)}: the extents of its result depend on the numbers in a tensor; expected extents that "
                "follow from those of the inputs; choose with torch.where, or take the first k by topk or sort",
                find_place(node, name),
            )


def _is_evaluated(node: torch.fx.Node, operator: torch._ops.OpOverload) -> bool:
    """Whether an operator that is random in training, such as rrelu, is called in evaluation mode."""
    for position, argument in enumerate(operator._schema.arguments):
        if argument.name in ("training", "train"):
            given = dict(enumerate(node.args)) | node.kwargs
            return given.get(position, given.get(argument.name, argument.default_value)) is False
    return False


def _refuse_chance(program: ExportedProgram, name: str) -> None:
    """Refuses random operators: results must depend on inputs only, and torch-mlir's lowering keeps hidden state."""
    for node in program.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        if torch.Tag.nondeterministic_seeded in node.target.tags and not _is_evaluated(node, node.target):
            raise CompileError(
                f"{called(node)}: its results are random; expected results that follow from the inputs: "
                "give random numbers as an input, or call eval() where it is a dropout", find_place(node, name)
            )


def _name_locations(importer: Any, context: ir.Context, graph: torch.fx.Graph) -> None:
    """Let the importer name the location of each operation by its module and operator; it has no hook for this."""
    inner = paths_with_submodules(graph)
    plain = type(importer._cc)

    class Named(plain):
        __slots__ = ()

        def get_node_location(self, node: torch.fx.Node) -> ir.Location:
            place = plain.get_node_location(self, node) or ir.Location.unknown(context)
            for name in reversed(source_names(node, inner)):
                place = ir.Location.name(name, place, context)
            return place

    importer._cc = Named(context, py_attr_tracker=importer._py_attr_tracker)


def _name_results(program: ExportedProgram) -> None:
    """Updates the names of results in the signature after nodes have been rewritten."""
    returned: Any = program.graph.output_node().args[0]
    for node, spec in zip(returned, program.graph_signature.output_specs, strict=True):
        if isinstance(node, torch.fx.Node) and isinstance(spec.arg, TensorArgument):
            spec.arg.name = node.name


def _hooks(parameters: dict[str, np.ndarray]) -> Any:
    """Importer hooks that make large constants arguments of the function, in order, and collect their data."""

    class Hooks(fx_importer().FxImporterHooks):
        def resolve_input(self, gni: Any, value: Any, info: Any) -> Any:
            if not is_parameter(value):
                return None  # the importer writes small constants into the program
            parameters[info.input_spec.target] = as_array(value)
            return gni._b.add_argument(info.ir_type, ir.Location.unknown(info.ir_type.context))

    return Hooks()


def is_parameter(value: torch.Tensor) -> bool:
    return value.dtype.is_floating_point and value.nbytes >= PARAMETER_BYTES


def as_array(value: torch.Tensor) -> np.ndarray:
    """The elements of a tensor on any device, contiguous, in its own type."""
    plain = value.detach().cpu().contiguous()
    if plain.dtype in _VIEWED:
        carrier, dtype = _VIEWED[plain.dtype]
        return plain.view(carrier).numpy().view(dtype)
    return plain.numpy()


def _take_arguments(function: ir.Operation) -> None:
    """Updates the function's type to that of its block, including parameters."""
    attributes = function.attributes
    results = ir.FunctionType(ir.TypeAttr(attributes["function_type"]).value).results
    arguments = [argument.type for argument in function.regions[0].blocks[0].arguments]
    with function.context:
        attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(arguments, list(results)))


def _interface(program: ExportedProgram, parameters: list[str], guards: list[Guard]) -> Interface:
    inputs: list[str] = []
    dims: list[list[str]] = []
    nodes = {node.name: node for node in program.graph.nodes}
    for spec in program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            continue
        if not isinstance(spec.arg, TensorArgument):
            if type(spec.arg).__name__ == "ConstantArgument":
                continue  # a constant of the program
            raise OptionError(f"input {spec.arg.name}: it is a number that differs from call to call; "
                              "expected tensors, and numbers that are always the same")
        inputs.append(spec.arg.name)
        shape = nodes[spec.arg.name].meta["val"].shape
        dims.append(["" if isinstance(extent, int) else str(extent) for extent in shape])
    results = [
        spec.arg.name for spec in program.graph_signature.output_specs
        if spec.kind == OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
    ]
    return Interface(inputs, dims, parameters, results, guards)


def _why_untraced(error: Exception) -> str:
    """The first line of torch.export's message, the extents that it could not keep dynamic with the reasons, and the
    line of the model that failed."""
    text = str(error)
    why = _first_line(error).partition(" For more information")[0].rstrip("!.")
    for extent in re.findall(r"^  - (.*?)(?:\. |$)", text, re.MULTILINE):
        why += f"; {extent}"
    if re.search(r"specialized it to be a constant \([01]\)", text):
        why += "; torch.export takes extents of 0 and 1 of the example inputs for fixed ones: give others, such as 2"
    if call := re.search(r'following call raised this error:\n *File "(.+)", line (\d+)', text):
        why += f", at {call[1]}:{call[2]}"
    return why


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
