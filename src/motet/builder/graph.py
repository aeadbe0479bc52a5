"""Graphs: the functions of the Python builder, with their inputs and results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import motet.builder.elementwise as elementwise
from motet.argument_kinds import brief, integer_of
from motet.builder.contraction import matmul
from motet.builder.movement import index
from motet.builder.tensor import Dim, GraphArgument, GraphText, Tensor, caller, dtype_name, quote
from motet.errors import CompileError
from motet.serialized import write_serialized

if TYPE_CHECKING:
    from motet.compiler.ir.program import Program


@dataclass
class _GraphResult:
    tensor: Tensor
    label: str
    device: str | None

    def text(self) -> str:
        device = f", motet.affinity = {quote(self.device)}" if self.device is not None else ""
        return f"{self.tensor.type} {{motet.name = {quote(self.label)}{device}}}"


@dataclass
class Graph(GraphText):
    """One function under construction, named `name`. As a context manager it checks at the end that the graph has a
    result."""

    operators: ClassVar[Mapping[str, Callable[..., Tensor]]] = {
        "add": elementwise.add, "sub": elementwise.sub, "mul": elementwise.mul, "div": elementwise.div,
        "pow": elementwise.pow, "neg": elementwise.neg, "abs": elementwise.abs, "less": elementwise.less,
        "less_equal": elementwise.less_equal, "greater": elementwise.greater,
        "greater_equal": elementwise.greater_equal, "matmul": matmul, "index": index,
    }  # fmt: skip
    _results: list[_GraphResult] = field(default_factory=list["_GraphResult"], repr=False)

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None and not self._results:
            raise CompileError(f"graph {self.name}: no result; call result(tensor) at least once", caller())

    def input(self, name: str, shape: Sequence[Dim], dtype: Any = "f32", device: str | None = None) -> Tensor:
        """An input. `shape` has ints and, for extents only known when the function is called, names;
        equal names mean equal extents. Raises CompileError for negative extents, unknown dtypes and
        repeated names."""
        self._new_label(name, "input")
        if not hasattr(shape, "__iter__"):
            raise CompileError(f"input {name}: shape {brief(shape)}; expected a tuple of ints and names", caller())
        for extent in shape:
            if isinstance(extent, str):
                if not re.fullmatch(r"[A-Za-z_]\w*", extent):
                    raise CompileError(
                        f"input {name}: extent {extent!r} is no name; expected an identifier", caller()
                    )
            elif (number := integer_of(int(extent) if _is_whole(extent) else extent)) is None or number < 0:
                raise CompileError(
                    f"input {name}: extent {brief(extent)}; expected a non-negative int or a name", caller()
                )
        tensor = Tensor(
            self, self.fresh(), tuple(e if isinstance(e, str) else int(e) for e in shape), dtype_name(dtype)
        )
        self._arguments.append(GraphArgument(tensor, name, device))
        for axis, extent in enumerate(tensor.shape):
            if isinstance(extent, str) and extent not in self._extents:
                self._extents[extent] = self.emit(
                    f"tensor.dim {tensor.name}, {self.index_constant(axis)} : {tensor.type}"
                )
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

        `motet.compile` and the command line accept it in place of MLIR text.
        """
        return write_serialized(self.to_mlir(), self._parameters)

    def program(self) -> Program:
        """The graph as the compiler's `Program` in normal form; needs the compiler's dependencies."""
        from motet.compiler.frontends.graph import load_graph
        from motet.compiler.pipeline import prepare

        program = load_graph(self.to_mlir(), self._parameters, f"<graph {self.name}>")
        prepare(program)
        return program

    def _new_label(self, label: str, what: str) -> None:
        if any(argument.label == label for argument in self._arguments):
            raise CompileError(
                f"{what} {label}: the name is used twice; expected a name of its own", caller()
            )


def _is_whole(extent: object) -> bool:
    return isinstance(extent, float) and extent.is_integer()
