"""The common part of all operators: collecting operands of one graph, checking them, writing one operation."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from motet.builder.tensor import Dim, GraphText, Shape, Tensor, caller, is_float, quote, shape_text, type_text
from motet.errors import CompileError

_BITS = {"f16": "<e", "f32": "<f", "f64": "<d"}


class Operation:
    """One call of the operator `name`: its graph, location and device, and methods to write it."""

    def __init__(self, name: str, device: str | None, *operands: Any) -> None:
        self.name = name
        self.device = device
        self.location = caller()
        graphs = [operand.graph for operand in operands if isinstance(operand, Tensor)]
        if not graphs:
            raise self.error("no operand is a tensor of a graph; expected at least one")
        if any(graph is not graphs[0] for graph in graphs):
            raise self.error(
                f"operands belong to graphs {graphs[0].name} and {graphs[-1].name}; expected one graph"
            )
        self.graph: GraphText = graphs[0]

    def error(self, message: str) -> CompileError:
        return CompileError(f"{self.name}: {message}", self.location)

    def tensor(self, operand: Any, like: str | None = None) -> Tensor:
        """The operand as a tensor: Python numbers get the dtype `like`, arrays become constants."""
        if isinstance(operand, Tensor):
            return operand
        if isinstance(operand, (bool, int, float)) and like is not None:
            if isinstance(operand, float) and not is_float(like):
                raise self.error(
                    f"the number {operand} does not fit {like}; cast the tensor, or use an integer"
                )
            return self.value(
                f"arith.constant dense<{literal(operand, like)}> : tensor<{like}>", (), like, attributes=False
            )
        if isinstance(operand, (np.ndarray, np.generic, list, tuple)):
            return self.graph.constant(operand)
        raise self.error(f"operand of type {type(operand).__name__}; expected a tensor, an array or a number")

    def tensors(self, *operands: Any) -> list[Tensor]:
        """Operands of one dtype. Raises CompileError if their dtypes differ."""
        like = next(operand.dtype for operand in operands if isinstance(operand, Tensor))
        found = [self.tensor(operand, like) for operand in operands]
        if any(tensor.dtype != like for tensor in found):
            raise self.error(
                f"dtypes differ: {', '.join(f'{shape_text(t.shape)} {t.dtype}' for t in found)}; "
                "expected one dtype, use cast"
            )
        return found

    def floating(self, operand: Tensor) -> Tensor:
        if not is_float(operand.dtype):
            raise self.error(
                f"operand is {shape_text(operand.shape)} {operand.dtype}; expected a floating dtype"
            )
        return operand

    def rank(self, operand: Tensor, rank: int, what: str) -> Tensor:
        if operand.rank != rank:
            raise self.error(f"{what} is {shape_text(operand.shape)} {operand.dtype}; expected rank {rank}")
        return operand

    def axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise self.error(f"axis {axis} is not in a tensor of rank {rank}; expected {-rank} to {rank - 1}")
        return axis % rank

    def broadcast(self, tensors: Sequence[Tensor]) -> Shape:
        """The common shape by numpy's rules. Raises CompileError, with all shapes, if there is none."""
        rank = max(tensor.rank for tensor in tensors)
        result: list[Dim] = []
        for axis in range(rank):
            extents = {t.shape[axis - rank + t.rank] for t in tensors if axis - rank + t.rank >= 0} - {1}
            if len(extents) > 1:
                raise self.error(
                    f"shapes do not broadcast: {' and '.join(shape_text(t.shape) for t in tensors)}; "
                    "expected equal extents or 1, there are "
                    f"{' and '.join(map(str, sorted(extents, key=str)))}"
                )
            result.append(extents.pop() if extents else 1)
        return tuple(result)

    # -- writing -----------------------------------------------------------------------------------

    def value(self, text: str, shape: Shape, dtype: str, attributes: bool = True) -> Tensor:
        """Appends an operation; `@@` in `text` marks the place of its attribute dictionary."""
        device = f"{{motet.affinity = {quote(self.device)}}}" if self.device is not None and attributes else ""
        return Tensor(self.graph, self.graph.emit(text.replace("@@", device), self.location), shape, dtype)

    def empty(self, shape: Shape, dtype: str) -> Tensor:
        sizes = ", ".join(self.graph.extent(extent) for extent in shape if isinstance(extent, str))
        return self.value(f"tensor.empty({sizes}) : {type_text(shape, dtype)}", shape, dtype)

    def filled(self, shape: Shape, dtype: str, number: float) -> Tensor:
        scalar = self.graph.scalar(literal(number, dtype), dtype)
        out = self.empty(shape, dtype)
        return self.value(
            f"linalg.fill @@ ins({scalar} : {dtype}) outs({out.name} : {out.type}) -> {out.type}",
            shape,
            dtype,
        )

    def named(self, name: str, inputs: Sequence[Tensor], out: Tensor, attributes: str = "") -> Tensor:
        """A named linalg operation `inputs` → `out`; `attributes` are entries of its dictionary."""
        entries = [attributes] if attributes else []
        if self.device is not None:
            entries.append(f"motet.affinity = {quote(self.device)}")
        dictionary = f"{{{', '.join(entries)}}} " if entries else ""
        return self.value(
            f"{name} {dictionary}ins({_typed(inputs)}) outs({_typed([out])}) -> {out.type}",
            out.shape,
            out.dtype,
        )

    def generic(
        self,
        inputs: Sequence[Tensor],
        maps: Sequence[str],
        out: Tensor,
        out_map: str,
        iterators: Sequence[str],
        body: Callable[[Body], str],
    ) -> Tensor:
        """A linalg.generic. Maps are results over `d0, d1, …` (`"d0, d2"`); `body` receives the scalars
        and returns the name of the value to yield."""
        dims = ", ".join(f"d{i}" for i in range(len(iterators)))
        affine = ", ".join(f"affine_map<({dims}) -> ({results})>" for results in (*maps, out_map))
        kinds = ", ".join(f'"{kind}"' for kind in iterators)
        scalars = Body(len(inputs))
        result = body(scalars)
        arguments = [*(f"%in{i}: {t.dtype}" for i, t in enumerate(inputs)), f"%out: {out.dtype}"]
        ins = f"ins({_typed(inputs)}) " if inputs else ""
        device = f" attrs = {{motet.affinity = {quote(self.device)}}}" if self.device is not None else ""
        block = "\n".join(
            f"      {line}" for line in [*scalars.lines, f"linalg.yield {result} : {out.dtype}"]
        )
        return self.value(
            f"linalg.generic {{indexing_maps = [{affine}], iterator_types = [{kinds}]}} {ins}"
            f"outs({_typed([out])}){device} {{\n    ^bb0({', '.join(arguments)}):\n"
            f"{block}\n    }} -> {out.type}",
            out.shape,
            out.dtype,
        )

    def elementwise(self, inputs: Sequence[Tensor], dtype: str, body: Callable[[Body], str]) -> Tensor:
        """`body` on every element of the broadcast inputs; the result has `dtype`."""
        shape = self.broadcast(inputs)
        maps = [_broadcast_map(tensor.shape, len(shape)) for tensor in inputs]
        dims = ", ".join(f"d{i}" for i in range(len(shape)))
        # An extent of 1 that is broadcast is read at 0; others at the dimension.
        maps = [dims if tensor.shape == shape else text for tensor, text in zip(inputs, maps, strict=True)]
        return self.generic(inputs, maps, self.empty(shape, dtype), dims, ["parallel"] * len(shape), body)


def _typed(tensors: Sequence[Tensor]) -> str:
    return f"{', '.join(t.name for t in tensors)} : {', '.join(t.type for t in tensors)}"


def _broadcast_map(shape: Shape, rank: int) -> str:
    offset = rank - len(shape)
    return ", ".join("0" if extent == 1 else f"d{axis + offset}" for axis, extent in enumerate(shape))


class Body:
    """The scalar operations of a linalg.generic; `inputs` and `out` name its block's arguments."""

    def __init__(self, inputs: int) -> None:
        self.inputs = [f"%in{i}" for i in range(inputs)]
        self.out = "%out"
        self.lines: list[str] = []

    def line(self, text: str) -> str:
        name = f"%s{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def constant(self, number: float, dtype: str) -> str:
        return self.line(f"arith.constant {literal(number, dtype)} : {dtype}")

    def op(self, name: str, dtype: str, *operands: str) -> str:
        """An operation whose operands and result have `dtype`."""
        return self.line(f"{name} {', '.join(operands)} : {dtype}")

    def cast(self, value: str, source: str, target: str) -> str:
        """Converts a scalar: values are kept if the target type has them; floats become integers by truncation."""
        if source == target:
            return value
        if target == "i1":
            zero = self.constant(0, source)
            test = "arith.cmpf une," if is_float(source) else "arith.cmpi ne,"
            return self.line(f"{test} {value}, {zero} : {source}")
        name = _cast_name(source, target)
        if name == "":  # between floats of one width
            return self.cast(self.cast(value, source, "f32"), "f32", target)
        return self.line(f"{name} {value} : {source} to {target}")


def _bits(dtype: str) -> int:
    return (
        8
        if dtype.startswith("f8")
        else 64
        if dtype == "index"
        else int("".join(c for c in dtype if c.isdigit()))
    )


def _cast_name(source: str, target: str) -> str:
    if is_float(source) and is_float(target):
        if _bits(source) == _bits(target):
            return ""
        return "arith.extf" if _bits(source) < _bits(target) else "arith.truncf"
    if is_float(source):
        return "arith.fptosi"
    if is_float(target):
        return "arith.uitofp" if source == "i1" else "arith.sitofp"
    if _bits(source) > _bits(target):
        return "arith.trunci"
    return "arith.extui" if source == "i1" else "arith.extsi"


def literal(number: float | int | bool, dtype: str) -> str:
    """A number in MLIR's syntax for `dtype`, without loss if the dtype can represent it."""
    if dtype == "i1":
        return "true" if number else "false"
    if not is_float(dtype):
        return str(int(number))
    value = float(number)
    if math.isfinite(value):
        return f"{value:.17e}"
    if dtype in _BITS:
        data = struct.pack(_BITS[dtype], value)
        return f"0x{int.from_bytes(data, 'little'):0{len(data) * 2}X}"
    kind: Any = {
        "bf16": ml_dtypes.bfloat16,
        "f8E4M3FN": ml_dtypes.float8_e4m3fn,
        "f8E5M2": ml_dtypes.float8_e5m2,
    }[dtype]
    data = np.asarray(value).astype(kind).tobytes()
    return f"0x{int.from_bytes(data, 'little'):0{len(data) * 2}X}"
