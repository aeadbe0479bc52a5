"""A program: the output of every frontend and the input of every later stage.

In normal form (`build/normal_form.py`) the module contains public `func.func`s on ranked tensors, with `linalg`,
`tensor`, `arith`, `math` (and `scf`, `func.call`) inside. Conventions are discardable attributes, so that upstream
tools can read the module:

- argument attribute `motet.parameter = "key"`: the argument is a constant tensor, with its data in
  `Program.parameters["key"]`; parameters follow all inputs. Only large floating-point or quantised data becomes a
  parameter; small and integer constants stay `arith.constant`.
- argument / result attribute `motet.name = "x"`: the name in the user's program.
- argument attribute `motet.dims = ["batch", ""]`: names of dynamic extents; equal names mean equal extents.
- argument / result attribute `motet.unsigned`: its integers are unsigned for the caller; in the module integers are
  signless, and operations have a sign.
- argument / result attribute `motet.element = "f8E4M3FN"`: its elements have this short type for the caller; in the
  module they are bytes (`ir/short_types.py`).
- argument attribute `motet.strided`: callers may pass a tensor of any strides, which is also written in place.
- argument attribute `motet.value = ["main.values", 0, "Tile \\"t\\""]`: callers do not pass the argument, which has no
  elements: its first extent is element 0 of the result of `main.values` on the inputs before it; the last entry names
  the operator that needs it.
- argument / result attribute `motet.state = "s"`: callers do not see it; a session keeps it between calls under this
  name, initially as the function `motet.initial_state` returns it. Such arguments follow the callers'.
- argument / result attribute `motet.memory = "usm_device"`: the kind of memory that callers give on an OpenCL queue;
  `#gpu.address_space<global>` is any kind of the device's memory.
- result attribute `motet.destination = 2 : i64`: the result is written in place into that argument.

A program for several devices has been placed (`compiler/placement/`): its `placement` has the devices, and the steps
over regions of each public function of the source; the public functions of the module are then the regions, each with
the attribute `motet.device = "name"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from motet.artifact.schema import MEMORY_KINDS, Constraint, ExtentValue, Link, LogicalDevice, Plan, Signature
from motet.compiler.ir._mlir import ir
from motet.errors import CompileError, Location

PARAMETER = "motet.parameter"
NAME = "motet.name"
DIMS = "motet.dims"
DESTINATION = "motet.destination"
STRIDED = "motet.strided"
UNSIGNED = "motet.unsigned"
ELEMENT = "motet.element"
VALUE = "motet.value"
STATE = "motet.state"
MEMORY = "motet.memory"
DEVICE = "motet.device"
_SPACE = re.compile(r"#gpu\.address_space<(\w+)>")
ONE_KERNEL = "motet.one_kernel"  # on public functions of small tensors: they become a single kernel
STRICT_TOKENS = "motet.strict_tokens"  # on modules: operations of gpu that wait for too little are errors
UNCHECKED = "motet.unchecked_indices"  # on modules: the user promises that indices are in bounds
DROPS = "motet.drops_outside"  # on scatters: an index out of bounds is ignored
OF_EXTENTS = "of_extents"  # on assertions about extents only: they become constraints of calls


@dataclass
class Placement:
    """`devices` are those of the program, with the default one at index `default`; `signatures` are of the functions
    that `plans` split, by name. A function without a plan runs entirely on the default device. `automatic` means that
    cost chose the devices: the regions must then run on any of them. `loops` are the locations of the plans' loops, by
    name."""

    devices: list[LogicalDevice]
    default: int = 0
    links: list[Link] = field(default_factory=list[Link])
    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])
    signatures: dict[str, Signature] = field(default_factory=dict[str, Signature])
    automatic: bool = False
    loops: dict[str, Location] = field(default_factory=dict[str, Location])


@dataclass
class Program:
    """`parameters` maps keys to arrays (memory-mapped if the source allows). After normalisation `constraints` has, for
    each public function, the constraints of its operations on extents. `file` is the name of the source in messages;
    `resources` has the data of `dense_resource<key>` attributes, which do not occur in normal form. `named` are the
    names that operations have in the source, also those of which nothing is left to compute."""

    module: ir.Module
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    placement: Placement | None = None
    constraints: Mapping[str, list[Constraint]] = field(default_factory=dict[str, list[Constraint]])
    file: str = "<program>"
    resources: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    named: frozenset[str] = frozenset()


def parameters_of(function: ir.Operation) -> dict[ir.Value, str]:
    """The arguments of a function that are constants, with their keys."""
    if "arg_attrs" not in function.attributes:
        return {}
    attributes = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    return {
        argument: ir.StringAttr(named[PARAMETER]).value
        for argument, named in zip(function.regions[0].blocks[0].arguments, attributes, strict=True)
        if PARAMETER in named
    }


def caller_dtype(dtype: str, attributes: ir.DictAttr | None) -> str:
    """The dtype that callers see of an argument or result with these attributes and element type `dtype`."""
    if attributes is not None and ELEMENT in attributes:
        dtype = ir.StringAttr(attributes[ELEMENT]).value
    unsigned = attributes is not None and UNSIGNED in attributes
    return f"u{dtype}" if unsigned and dtype in ("i2", "i4", "i8", "i16", "i32", "i64") else dtype


def value_of(attributes: ir.DictAttr | None) -> ExtentValue | None:
    """The value that determines the first extent of an argument with these attributes; None if there is none."""
    if attributes is None or VALUE not in attributes:
        return None
    function, index, operator, result = ir.ArrayAttr(attributes[VALUE])
    return ExtentValue(
        ir.StringAttr(function).value, ir.IntegerAttr(index).value, ir.StringAttr(operator).value,
        ir.IntegerAttr(result).value,
    )


def state_of(attributes: ir.DictAttr | None) -> str | None:
    """The name of the state that an argument or result with these attributes is; None if it is not state."""
    return None if attributes is None or STATE not in attributes else ir.StringAttr(attributes[STATE]).value


def memory_of(attributes: ir.DictAttr | None, where: str) -> str:
    """The kind of memory that callers give for an argument or result with these attributes; empty if any. Raises
    CompileError for a kind that does not exist."""
    if attributes is None or MEMORY not in attributes:
        return ""
    stated = attributes[MEMORY]
    if (space := _SPACE.fullmatch(str(stated))) is not None:
        text = space[1]
    else:
        text = ir.StringAttr(stated).value if isinstance(stated, ir.StringAttr) else str(stated)
    if text not in MEMORY_KINDS:
        raise CompileError(f"{where}: {MEMORY} = {stated}; expected one of {', '.join(MEMORY_KINDS)}, or "
                           "#gpu.address_space<global>")  # fmt: skip
    return text


def unsigned(kinds: Iterable[ir.Type]) -> list[int]:
    """The numbers of those of `kinds`, tensor types of a dialect with signed integers, that hold unsigned integers."""
    return [number for number, kind in enumerate(kinds) if re.search(r"ui(2|4|8|16|32|64)>$", str(kind))]


def show_unsigned(function: ir.Operation, inputs: Iterable[int], results: Iterable[int]) -> None:
    """Marks arguments and results of a function as unsigned for its callers; keeps their other attributes."""
    mark = {UNSIGNED: ir.UnitAttr.get()}
    _mark(function, dict.fromkeys(inputs, mark), dict.fromkeys(results, mark))


def show_elements(function: ir.Operation, inputs: Iterable[str], results: Iterable[str]) -> None:
    """Marks the bytes of arguments and results as elements of these short types for callers; "" for ordinary
    elements."""
    marks = [
        {number: {ELEMENT: ir.StringAttr.get(name)} for number, name in enumerate(names) if name}
        for names in (inputs, results)
    ]
    _mark(function, *marks)


def _mark(
    function: ir.Operation, inputs: Mapping[int, dict[str, ir.Attribute]],
    results: Mapping[int, dict[str, ir.Attribute]],
) -> None:
    """Adds attributes to arguments and results."""
    signature = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    for group, marks, count in (
        ("arg_attrs", inputs, len(signature.inputs)), ("res_attrs", results, len(signature.results))
    ):
        if not marks:
            continue
        known = [ir.DictAttr.get({})] * count
        if group in function.attributes:
            known = [ir.DictAttr(a) for a in ir.ArrayAttr(function.attributes[group])]
        function.attributes[group] = ir.ArrayAttr.get([
            ir.DictAttr.get({e.name: e.attr for e in one} | marks.get(number, {})) for number, one in enumerate(known)
        ])


def checks_indices(function: ir.Operation) -> bool:
    """Whether code for `function` checks indices, because the user has not promised that they are in bounds."""
    module = function.parent
    return module is None or UNCHECKED not in module.attributes
