"""Tensors of a graph, and the MLIR text that operators append to it.

Each operation of the text has the caller's line as location, so that errors of later stages name the user's Python
code. Building a graph does not need MLIR.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from motet.argument_kinds import brief
from motet.artifact.dtypes import DTYPES
from motet.errors import CompileError, Location

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
    """MLIR's name of a dtype given as such a name (`f32`) or as a numpy dtype (`np.float32`).

    Raises CompileError for an unsupported dtype.
    """
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    try:
        return _NAMES[np.dtype(dtype)]
    except (TypeError, ValueError, KeyError):
        raise CompileError(
            f"dtype {brief(dtype)}: unknown; expected one of {', '.join(_NAMES.values())}", caller()
        ) from None


def caller() -> Location:
    """The location of the innermost call from outside the builder."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


def shape_text(shape: Sequence[Dim]) -> str:
    """A shape as messages show it: `batch×1024`."""
    return "×".join(map(str, shape)) if shape else "scalar"


def type_text(shape: Sequence[Dim], dtype: str) -> str:
    extents = "".join(f"{'?' if isinstance(extent, str) else extent}x" for extent in shape)
    return f"tensor<{extents}{dtype}>"


def quote(text: str) -> str:
    """A string literal of MLIR: characters other than printable ASCII become escaped UTF-8 bytes."""
    return (
        '"'
        + "".join(chr(b) if 0x20 <= b < 0x7F and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())
        + '"'
    )


class Tensor:
    """A value of a graph. `shape` has ints and names of dynamic extents; `dtype` is MLIR's spelling (`f32`).

    Arithmetic operators, comparisons (`<`, `<=`, `>`, `>=`), `@` and slicing call the operators of this package;
    `==` compares identity, use `equal` to compare elements.
    """

    # Makes `array + tensor`, with a numpy array on the left, call the tensor's operator.
    __array_ufunc__ = None

    def __init__(self, graph: GraphText, name: str, shape: Shape, dtype: str) -> None:
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
        return self.graph.operators["add"](self, other)

    def __radd__(self, other: Any) -> Tensor:
        return self.graph.operators["add"](other, self)

    def __sub__(self, other: Any) -> Tensor:
        return self.graph.operators["sub"](self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return self.graph.operators["sub"](other, self)

    def __mul__(self, other: Any) -> Tensor:
        return self.graph.operators["mul"](self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return self.graph.operators["mul"](other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return self.graph.operators["div"](self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self.graph.operators["div"](other, self)

    def __pow__(self, other: Any) -> Tensor:
        return self.graph.operators["pow"](self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return self.graph.operators["pow"](other, self)

    def __neg__(self) -> Tensor:
        return self.graph.operators["neg"](self)

    def __abs__(self) -> Tensor:
        return self.graph.operators["abs"](self)

    def __lt__(self, other: Any) -> Tensor:
        return self.graph.operators["less"](self, other)

    def __le__(self, other: Any) -> Tensor:
        return self.graph.operators["less_equal"](self, other)

    def __gt__(self, other: Any) -> Tensor:
        return self.graph.operators["greater"](self, other)

    def __ge__(self, other: Any) -> Tensor:
        return self.graph.operators["greater_equal"](self, other)

    def __matmul__(self, other: Any) -> Tensor:
        return self.graph.operators["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return self.graph.operators["matmul"](other, self)

    def __getitem__(self, key: Any) -> Tensor:
        return self.graph.operators["index"](self, key)


@dataclass
class GraphArgument:
    """An argument of a graph's function: the input `label`, or the parameter with that key."""

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
class GraphText:
    """The text of a graph under construction, to which operators append. Arguments are inputs and large constants.
    `operators` has the functions behind Python's operators on tensors, by name."""

    operators: ClassVar[Mapping[str, Callable[..., Tensor]]]

    name: str
    _arguments: list[GraphArgument] = field(default_factory=list["GraphArgument"], repr=False)
    _lines: list[str] = field(default_factory=list[str], repr=False)
    _extents: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    _parameters: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray], repr=False)
    _scalars: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    _count: int = field(default=0, repr=False)

    def constant(self, value: Any, name: str | None = None, dtype: Any = None) -> Tensor:
        """A constant tensor from an array or nested lists; data of 4 KiB and more stays an array."""
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
        self._arguments.append(GraphArgument(tensor, label, parameter=True))
        return tensor

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
        """The name of a scalar constant, which is created once."""
        text = f"arith.constant {literal} : {dtype}"
        if text not in self._scalars:
            self._scalars[text] = self.emit(text)
        return self._scalars[text]

    def extent(self, extent: Dim) -> str:
        """The name of an extent as an index value."""
        return self._extents[extent] if isinstance(extent, str) else self.index_constant(extent)

    def derive(self, operation: str, left: Dim, right: Dim) -> Dim:
        """The extent `left operation right`, where `operation` is one of `+ - * //`; both operands and the result
        must be non-negative."""
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


def _dense(array: np.ndarray) -> str:
    """The elements without loss: bytes in hexadecimal, or words for booleans."""
    if array.dtype == np.bool_:
        return f"dense<{json.dumps(array.tolist())}>"
    if array.size == 0:
        return "dense<>"
    data = np.ascontiguousarray(array)
    if data.dtype.byteorder == ">":
        data = data.astype(data.dtype.newbyteorder("<"))
    return f'dense<"0x{data.tobytes().hex().upper()}">'
