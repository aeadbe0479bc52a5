"""The conditions on extents under which an exported program is right: ranges and relations of dimensions, and the
guards that torch.export recorded while it traced, such as the side of a branch that was taken.

A condition is Python text over `extent_I_A`, the extent of input I along axis A, with its text for users.
"""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_unflatten
from torch.utils._sympy.printers import PythonPrinter

from motet.errors import CompileError, Location
from motet.pytorch.interface import Guard

_SOURCE = re.compile(r"(L(?:\['[^']*'\]|\[\d+\])+)\.size\(\)\[(\d+)\]")
_FIRST = 2  # torch.export takes extents of 0 and 1 for others than these when it traces, but lets them pass in calls


def read_guards(program: ExportedProgram, name: str) -> list[Guard]:
    """The conditions, before the program's operators are decomposed. Raises CompileError for a guard that is about
    something else than extents of inputs."""
    inputs = _inputs(program)
    extents = [
        (number, axis, extent) for number, shape in enumerate(inputs.values()) for axis, extent in enumerate(shape)
        if not isinstance(extent, int)
    ]
    places: dict[Any, str] = {}  # of symbols that are an extent
    for number, axis, extent in extents:
        if (symbol := extent.node.expr).is_Symbol:
            places.setdefault(symbol, f"extent_{number}_{axis}")
    found = [*_relations(extents, places), *_ranges(program, places), *_recorded(program, inputs, places, name)]
    names = list(inputs)
    return [Guard(text, _for_users(text, names)) for text in dict.fromkeys(found)]


def _inputs(program: ExportedProgram) -> dict[str, Any]:
    """The shapes of the tensors that a call gives, by name, in order."""
    nodes = {node.name: node for node in program.graph.nodes}
    specs = program.graph_signature.input_specs
    return {
        spec.arg.name: nodes[spec.arg.name].meta["val"].shape
        for spec in specs if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    }


def _relations(extents: list[tuple[int, int, Any]], places: dict[Any, str]) -> Iterator[str]:
    """What extents such as 2·n + 1 say of each other. A dimension that is no extent itself is solved for, and added to
    `places`."""
    for number, axis, extent in extents:
        expression, own = extent.node.expr, f"extent_{number}_{axis}"
        if expression.is_Symbol:
            continue
        free = sorted(expression.free_symbols - places.keys(), key=str)
        if len(free) == 1 and (line := expression.as_poly(free[0])) is not None and line.degree() == 1:
            factor, offset = line.coeff_monomial(free[0]), line.coeff_monomial(1)
            if factor.is_Integer and offset.is_Integer:
                places[free[0]] = f"(({own} - {offset}) // {factor})"
                yield f"({own} - {offset}) % {factor} == 0"
                continue
        if not free:
            yield f"{own} == {_printed(expression, places)}"


def _ranges(program: ExportedProgram, places: Mapping[Any, str]) -> Iterator[str]:
    for symbol, limits in program.range_constraints.items():
        place = places.get(symbol)
        if place is None:
            continue
        if limits.lower > _FIRST and limits.lower < math.inf:
            yield f"{place} >= {limits.lower}"
        if limits.upper < torch.iinfo(torch.int64).max - 1:  # symbols without a limit have one of about this size
            yield f"{place} <= {limits.upper}"


def _recorded(
    program: ExportedProgram, inputs: Mapping[str, Any], places: Mapping[Any, str], name: str
) -> Iterator[str]:
    """The guards of tracing. PyTorch before 2.9 keeps them as expressions only, in programs that were not saved."""
    texts = getattr(program, "_guards_code", None)
    if texts is None:
        for guard in getattr(_environment(program), "guards", ()):
            if guard.expr.free_symbols <= places.keys():
                yield _printed(guard.expr, places)
        return
    sources = _sources(program, list(inputs))
    for text in texts:
        def placed(found: re.Match[str], text: str = text) -> str:
            if found[1] not in sources:
                raise CompileError(f"torch.export's guard {text} is about no tensor of a call", Location(name))
            return f"extent_{sources[found[1]]}_{found[2]}"

        condition = _SOURCE.sub(placed, text)
        if "L[" in condition:
            raise CompileError(
                f"torch.export's guard {text} is about something else than extents, which calls cannot be checked for; "
                "expected a module whose path depends on extents of its inputs alone", Location(name)
            )
        yield condition


def _environment(program: ExportedProgram) -> Any:
    """Where tracing has recorded what it knows of symbols; None if there are none."""
    for node in program.graph.nodes:
        for extent in getattr(node.meta.get("val"), "shape", ()):
            if isinstance(extent, torch.SymInt):
                return extent.node.shape_env
    return None


def _sources(program: ExportedProgram, names: list[str]) -> dict[str, int]:
    """How guards may name the tensors of a call: by parameter of `forward`, by position, or by name in the program."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    numbers = {spec.arg.name: names.index(spec.arg.name) for spec in specs if spec.arg.name in names}
    found = {f"L['{name}']": number for name, number in numbers.items()}
    tree = program.call_spec.in_spec
    if tree is None or tree.num_leaves != len(specs):
        return found
    root = next((entry.signature for entry in program.module_call_graph if entry.fqn == ""), None)
    parameters = getattr(root, "forward_arg_names", None) or []
    whole = tree_unflatten(list(range(len(specs))), tree)
    for path, leaf in tree_flatten_with_path(whole)[0]:
        number = numbers.get(specs[leaf].arg.name)
        if number is None:
            continue
        rest = keystr(path[2:])
        found[f"L['flat_args'][{leaf}]"] = number
        if path[0].idx == 1:
            found[f"L{keystr(path[1:])}"] = number
            continue
        position = path[1].idx
        found[f"L['args'][{position}]{rest}"] = number
        parameter = parameters[position] if position < len(parameters) else ""
        found[f"L['{parameter}']{rest}"] = number
        if several := re.fullmatch(r"(.+)_(\d+)", parameter):  # of a parameter `*name`
            found[f"L['{several[1]}'][{several[2]}]{rest}"] = number
    return found


def _printed(expression: Any, places: Mapping[Any, str]) -> str:
    text = PythonPrinter().doprint(expression)
    by_name = {str(symbol): place for symbol, place in places.items()}
    return re.sub(r"\b[a-zA-Z_]\w*\b", lambda found: by_name.get(found[0], found[0]), text)


def _for_users(condition: str, names: list[str]) -> str:
    return re.sub(
        r"extent_(\d+)_(\d+)", lambda found: f"{names[int(found[1])]}.shape[{found[2]}]", condition
    )
