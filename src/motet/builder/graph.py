"""Graphs and tensors: the state behind the Python builder, and the MLIR text it writes.

A graph is one function. Operators append text to it as they are called, with the caller's line as
location, so that an error in a later stage names the user's Python. MLIR itself is not needed to
build a graph.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.builder.serialized import write_serialized
from motet.errors import CompileError, Location

if TYPE_CHECKING:
    from motet.compiler.ir.program import Program

Dim = int | str
Shape = tuple[Dim, ...]

PARAMETER_BYTES = 4096  # constants of this size and more stay arrays; smaller ones are written into the text
_HERE = str(Path(__file__).parent)
_FLOATS = ("f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2")
_NAMES = {
    dtype: name
    for name, dtype in reversed(DTYPES.items())
    if not name.startswith(("si", "index")) and name != "u8"
}


def is_float(dtype: str) -> bool:
    return dtype in _FLOATS


def dtype_name(dtype: Any) -> str:
    """MLIR's name of a dtype given as such a name (`f32`) or as anything numpy takes (`np.float32`).

    Raises CompileError for a dtype that Motet does not have.
    """
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    try:
        return _NAMES[np.dtype(dtype)]
    except (TypeError, KeyError):
        raise CompileError(
            f"dtype {dtype!r}: unknown; expected one of {', '.join(_NAMES.values())}", caller()
        ) from None


def caller() -> Location:
    """The line outside the builder that called it."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


def shape_text(shape: Sequence[Dim]) -> str:
    """As messages show it: `batch×1024`."""
    return "×".join(map(str, shape)) if shape else "scalar"


def type_text(shape: Sequence[Dim], dtype: str) -> str:
    extents = "".join(f"{'?' if isinstance(extent, str) else extent}x" for extent in shape)
    return f"tensor<{extents}{dtype}>"


class Tensor:
    """A value of a graph. `shape` has ints and names of dynamic extents; `dtype` is MLIR's spelling (`f32`).

    Arithmetic operators, comparisons (`<`, `<=`, `>`, `>=`), `@` and slicing are the operators of the module;
    `==` compares identity, use `equal` for the elements.
    """

    # numpy arrays on the left leave `array + tensor` to the tensor.
    __array_ufunc__ = None

    def __init__(self, graph: Graph, name: str, shape: Shape, dtype: str) -> None:
        self.graph = graph
        self.name = name
        self.shape = shape
        self.dtype = dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def type(self) -> str:
        """MLIR's spelling of the type."""
        return type_text(self.shape, self.dtype)

    def __repr__(self) -> str:
        return f"<Tensor {self.name} {shape_text(self.shape)} {self.dtype}>"

    def __add__(self, other: Any) -> Tensor:
        return _elementwise().add(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _elementwise().add(other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _elementwise().sub(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _elementwise().sub(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _elementwise().mul(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _elementwise().mul(other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _elementwise().div(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _elementwise().div(other, self)

    def __pow__(self, other: Any) -> Tensor:
        return _elementwise().pow(self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return _elementwise().pow(other, self)

    def __neg__(self) -> Tensor:
        return _elementwise().neg(self)

    def __abs__(self) -> Tensor:
        return _elementwise().abs(self)

    def __lt__(self, other: Any) -> Tensor:
        return _elementwise().less(self, other)

    def __le__(self, other: Any) -> Tensor:
        return _elementwise().less_equal(self, other)

    def __gt__(self, other: Any) -> Tensor:
        return _elementwise().greater(self, other)

    def __ge__(self, other: Any) -> Tensor:
        return _elementwise().greater_equal(self, other)

    def __matmul__(self, other: Any) -> Tensor:
        from motet.builder.contraction import matmul

        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        from motet.builder.contraction import matmul

        return matmul(other, self)

    def __getitem__(self, key: Any) -> Tensor:
        from motet.builder.movement import index

        return index(self, key)


def _elementwise() -> Any:
    from motet.builder import elementwise

    return elementwise


@dataclass
class _Argument:
    tensor: Tensor
    label: str
    device: str | None = None
    parameter: bool = False

    def text(self) -> str:
        attributes: list[str] = []
        if self.parameter:
            attributes.append(f"motet.parameter = {quote(self.label)}")
        else:
            attributes.append(f"motet.name = {quote(self.label)}")
        if any(isinstance(extent, str) for extent in self.tensor.shape):
            names = ", ".join(quote(e if isinstance(e, str) else "") for e in self.tensor.shape)
            attributes.append(f"motet.dims = [{names}]")
        if self.device is not None:
            attributes.append(f"motet.affinity = {quote(self.device)}")
        return f"{self.tensor.name}: {self.tensor.type} {{{', '.join(attributes)}}}"


@dataclass
class _GraphResult:
    tensor: Tensor
    label: str
    device: str | None

    def text(self) -> str:
        device = f", motet.affinity = {quote(self.device)}" if self.device is not None else ""
        return f"{self.tensor.type} {{motet.name = {quote(self.label)}{device}}}"


def quote(text: str) -> str:
    """A string literal of MLIR: what is not printable ASCII becomes its UTF-8 bytes, escaped."""
    return (
        '"'
        + "".join(chr(b) if 0x20 <= b < 0x7F and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())
        + '"'
    )


@dataclass
class Graph:
    """One function under construction, called `name`. Usable in a `with` statement, which checks at its end
    that the graph has a result."""

    name: str
    _arguments: list[_Argument] = field(default_factory=list["_Argument"], repr=False)
    _results: list[_GraphResult] = field(default_factory=list["_GraphResult"], repr=False)
    _lines: list[str] = field(default_factory=list[str], repr=False)
    _extents: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    _parameters: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray], repr=False)
    _scalars: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    _count: int = field(default=0, repr=False)

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None and not self._results:
            raise CompileError(f"graph {self.name}: no result; call result(tensor) at least once", caller())

    # -- the interface of the user -----------------------------------------------------------------

    def input(self, name: str, shape: Sequence[Dim], dtype: Any = "f32", device: str | None = None) -> Tensor:
        """An input. `shape` has ints and, for extents known only when the function is called, names;
        equal names are equal extents. Raises CompileError for negative extents, unknown dtypes and
        names used twice."""
        self._new_label(name, "input")
        for extent in shape:
            if isinstance(extent, str):
                if not re.fullmatch(r"[A-Za-z_]\w*", extent):
                    raise CompileError(
                        f"input {name}: extent {extent!r} is no name; expected an identifier", caller()
                    )
            elif isinstance(extent, bool) or extent < 0:
                raise CompileError(
                    f"input {name}: extent {extent!r}; expected a non-negative int or a name", caller()
                )
        tensor = Tensor(
            self, self.fresh(), tuple(e if isinstance(e, str) else int(e) for e in shape), dtype_name(dtype)
        )
        self._arguments.append(_Argument(tensor, name, device))
        for axis, extent in enumerate(tensor.shape):
            if isinstance(extent, str) and extent not in self._extents:
                self._extents[extent] = self.emit(
                    f"tensor.dim {tensor.name}, {self.index_constant(axis)} : {tensor.type}"
                )
        return tensor

    def constant(self, value: Any, name: str | None = None, dtype: Any = None) -> Tensor:
        """A constant tensor from an array or nested lists; data of 4 KiB and more is kept as the array it
        is."""
        array = np.asarray(value)
        if dtype is not None:
            array = array.astype(DTYPES[dtype_name(dtype)])
        elif not isinstance(value, (np.ndarray, np.generic)) and array.dtype == np.float64:
            array = array.astype(np.float32)
        kind = dtype_name(array.dtype)
        if array.nbytes < PARAMETER_BYTES:
            return Tensor(
                self,
                self.emit(f"arith.constant {_dense(array)} : {type_text(array.shape, kind)}"),
                array.shape,
                kind,
            )
        label = name if name is not None else f"constant_{len(self._parameters)}"
        if label in self._parameters:
            if self._parameters[label] is not array:
                raise CompileError(
                    f"constant {label}: the name is used twice; expected a name of its own", caller()
                )
            return next(a.tensor for a in self._arguments if a.parameter and a.label == label)
        tensor = Tensor(self, self.fresh(), array.shape, kind)
        self._parameters[label] = array
        self._arguments.append(_Argument(tensor, label, parameter=True))
        return tensor

    def result(self, tensor: Tensor, name: str | None = None, device: str | None = None) -> None:
        """Makes `tensor` the next result."""
        if tensor.graph is not self:
            raise CompileError(
                f"result: the tensor belongs to graph {tensor.graph.name}, not {self.name}", caller()
            )
        label = name if name is not None else f"result_{len(self._results)}"
        if any(there.label == label for there in self._results):
            raise CompileError(
                f"result {label}: the name is used twice; expected a name of its own", caller()
            )
        self._results.append(_GraphResult(tensor, label, device))

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """The data of the arguments marked `motet.parameter` in the text, by key."""
        return dict(self._parameters)

    def to_mlir(self) -> str:
        """MLIR text in normal form. Large constants are arguments marked `motet.parameter`, see
        `parameters`."""
        if not self._results:
            raise CompileError(f"graph {self.name}: no result; call result(tensor) at least once", caller())
        ordered = sorted(self._arguments, key=lambda argument: argument.parameter)
        name = self.name if re.fullmatch(r"[A-Za-z_][\w$]*", self.name) else quote(self.name)
        arguments = ",\n    ".join(argument.text() for argument in ordered)
        results = ", ".join(result.text() for result in self._results)
        values = ", ".join(result.tensor.name for result in self._results)
        types = ", ".join(result.tensor.type for result in self._results)
        body = "\n".join(self._lines)
        return (
            f"func.func @{name}(\n    {arguments}) -> ({results}) {{\n{body}\n"
            f"  return {values} : {types}\n}}\n"
        )

    def __str__(self) -> str:
        return self.to_mlir()

    def serialize(self) -> bytes:
        """The graph as one file: safetensors with the parameters, the MLIR text in its metadata.

        `motet compile` and `motet.compile` take it where they take MLIR text.
        """
        return write_serialized(self.to_mlir(), self._parameters)

    def program(self) -> Program:
        """The graph as the compiler's `Program`; needs the compiler's dependencies."""
        from motet.compiler.frontends.graph import load_graph

        return load_graph(self.to_mlir(), self._parameters, f"<graph {self.name}>")

    # -- the interface of the operators ------------------------------------------------------------

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def emit(self, text: str, location: Location | None = None) -> str:
        """Appends an operation with one result; returns the result's name."""
        name = self.fresh()
        self.append(f"{name} = {text}", location)
        return name

    def append(self, text: str, location: Location | None = None) -> None:
        place = location if location is not None else caller()
        self._lines.append(f"  {text} loc({quote(place.file)}:{place.line}:1)")

    def index_constant(self, value: int) -> str:
        return self.scalar(str(value), "index")

    def scalar(self, literal: str, dtype: str) -> str:
        """The name of a scalar constant, made once."""
        text = f"arith.constant {literal} : {dtype}"
        if text not in self._scalars:
            self._scalars[text] = self.emit(text)
        return self._scalars[text]

    def extent(self, extent: Dim) -> str:
        """The name of an index value: an extent."""
        return self._extents[extent] if isinstance(extent, str) else self.index_constant(extent)

    def derive(self, operation: str, left: Dim, right: Dim) -> Dim:
        """The extent `left operation right` with `operation` one of `+ - * //`; both are non-negative, and so
        must the result be."""
        if isinstance(left, int) and isinstance(right, int):
            return (
                {"+": left + right, "-": left - right, "*": left * right}[operation]
                if operation != "//"
                else left // right
            )
        if (operation in "+-" and right == 0) or (operation in ("*", "//") and right == 1):
            return left
        if (operation == "*" and left == 1) or (operation == "+" and left == 0):
            return right
        name = f"({left}{operation}{right})"
        if name not in self._extents:
            mnemonic = {"+": "addi", "-": "subi", "*": "muli", "//": "divui"}[operation]
            self._extents[name] = self.emit(
                f"arith.{mnemonic} {self.extent(left)}, {self.extent(right)} : index"
            )
        return name

    def _new_label(self, label: str, what: str) -> None:
        if any(argument.label == label for argument in self._arguments):
            raise CompileError(
                f"{what} {label}: the name is used twice; expected a name of its own", caller()
            )


def _dense(array: np.ndarray) -> str:
    """The elements, exactly: bytes in hexadecimal, or words for booleans."""
    if array.dtype == np.bool_:
        return f"dense<{json.dumps(array.tolist())}>"
    if array.size == 0:
        return "dense<>"
    data = np.ascontiguousarray(array)
    if data.dtype.byteorder == ">":
        data = data.astype(data.dtype.newbyteorder("<"))
    return f'dense<"0x{data.tobytes().hex().upper()}">'
