"""Products that a library of the device's vendor can compute, as an alternative to the generated kernel.

A launch record may have one under `library`: a matrix product of operands in the launch's buffers, with the operations
that follow it. A runtime that has the library may call it instead of launching the kernel. The kernel always exists: a
runtime without the library, or without support for this version of the record, launches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from motet.artifact.dtypes import DTYPES
from motet.decoding import convert, decode_json

VERSION = 1
CUBLASLT = "cublaslt"

_ANY = 1 << 16  # an upper bound of the buffers of a launch
_CODE = 64  # bytes of an algorithm in cuBLASLt's representation
_MOST = 1 << 31  # rows, columns and products of each result
_FURTHEST = 1 << 48  # an upper bound of offsets, in elements
_LARGEST_WORKSPACE = 1 << 32  # bytes


class UnknownLibrary(ValueError):
    """A record of another version, or of another library; readers ignore it."""


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class LibraryOperand(_Struct, frozen=True):
    """A matrix, or a batch of matrices, in the launch's buffer number `buffer`: element (b, i, j) has the index
    `offset + b * batch + i * row + j * column`."""

    buffer: int
    dtype: str
    row: int
    column: int
    batch: int = 0
    offset: int = 0

    def end(self, rows: int, columns: int, batch: int) -> int:
        """The number of bytes from the start of the buffer to the end of the operand."""
        last = self.offset + (rows - 1) * self.row + (columns - 1) * self.column + (batch - 1) * self.batch
        return (last + 1) * DTYPES[self.dtype].itemsize


class Algorithm(_Struct, frozen=True):
    """The algorithm with which version `version` of the library (130100 for 13.1.0) was measured: its opaque code in
    hexadecimal digits, and the bytes of its workspace. Other versions choose their own."""

    library: int
    code: str
    workspace: int


class LibraryCall(_Struct, frozen=True):
    """`result = activation(left · right + addend + bias)` for each of a `batch`, where `left` is `rows` × `depth`,
    `right` `depth` × `columns`, `addend` as the result, and `bias` a vector that is added to every row.

    `precision` is that of products and their sums: `f32`, `tf32` (operands rounded to 11 bits), `f64`, `i32`.
    `activation` is none, `relu`, or `gelu` in the tanh approximation. Without `algorithm` the library's heuristic
    chooses.
    """

    version: int
    name: str
    rows: int
    columns: int
    depth: int
    left: LibraryOperand
    right: LibraryOperand
    result: LibraryOperand
    precision: Literal["f32", "tf32", "f64", "i32"]
    batch: int = 1
    addend: LibraryOperand | None = None
    bias: LibraryOperand | None = None
    activation: Literal["", "relu", "gelu"] = ""
    algorithm: Algorithm | None = None

    def operands(self) -> list[tuple[str, LibraryOperand, int, int]]:
        """Each operand with its name, rows and columns."""
        found = [
            ("left", self.left, self.rows, self.depth), ("right", self.right, self.depth, self.columns),
            ("result", self.result, self.rows, self.columns),
        ]
        if self.addend is not None:
            found.append(("addend", self.addend, self.rows, self.columns))
        if self.bias is not None:
            found.append(("bias", self.bias, 1, self.columns))
        return found


class _Head(msgspec.Struct, frozen=True):
    version: int
    name: str


def read_call(content: Mapping[str, Any], buffers: int = _ANY) -> LibraryCall:
    """The record in the description of a launch with `buffers` buffers. Raises UnknownLibrary for one of another
    version or library, ValueError for a damaged one."""
    head = convert(content, _Head)
    if (head.version, head.name) != (VERSION, CUBLASLT):
        raise UnknownLibrary(
            f"a call of {head.name}, record version {head.version}; this runtime knows {CUBLASLT}, version {VERSION}"
        )
    call = convert(content, LibraryCall)
    if reason := damage(call, buffers):
        raise ValueError(reason)
    return call


def damage(call: LibraryCall, buffers: int = _ANY) -> str | None:
    """The first error in a record of a launch with `buffers` buffers; None if it is valid."""
    for name in ("rows", "columns", "depth", "batch"):
        if not 1 <= getattr(call, name) < _MOST:
            return f"library: {name}: {getattr(call, name)}; expected 1 to {_MOST - 1}"
    for name, operand, rows, columns in call.operands():
        if reason := _damaged_operand(operand, buffers, rows, columns):
            return f"library: {name}: {reason}"
    if call.result.column != 1:
        return f"library: result: {call.result.column} elements from column to column; expected 1"
    if call.algorithm is not None:
        return _damaged_algorithm(call.algorithm)
    return None


def _damaged_operand(operand: LibraryOperand, buffers: int, rows: int, columns: int) -> str | None:
    if not 0 <= operand.buffer < buffers:
        return f"buffer {operand.buffer}; there are {buffers}, from 0 on"
    if operand.dtype not in DTYPES:
        return f"dtype {operand.dtype}; expected one of {', '.join(DTYPES)}"
    numbers = (operand.row, operand.column, operand.batch, operand.offset)
    if any(not 0 <= number < _FURTHEST for number in numbers):
        return f"strides {list(numbers[:3])} and offset {operand.offset}; expected 0 to {_FURTHEST - 1}"
    along_rows = operand.column == 1 and (rows == 1 or operand.row >= columns)
    along_columns = operand.row == 1 and (columns == 1 or operand.column >= rows)
    if not along_rows and not along_columns:
        return f"{rows} × {columns} with strides {operand.row} and {operand.column}; expected lines side by side"
    return None


def _damaged_algorithm(algorithm: Algorithm) -> str | None:
    try:
        length = len(bytes.fromhex(algorithm.code))
    except ValueError:
        length = -1
    if length != _CODE:
        return f"library: algorithm: code {algorithm.code[:16]}…; expected {2 * _CODE} hexadecimal digits"
    if not 0 <= algorithm.workspace <= _LARGEST_WORKSPACE:
        return f"library: algorithm: {algorithm.workspace} bytes of workspace; expected 0 to {_LARGEST_WORKSPACE}"
    return None


def show_version(version: int) -> str:
    """130100 as 13.1.0. Before version 12, the major version was multiplied by a thousand."""
    unit = 10_000 if version >= 100_000 else 1_000
    major, rest = divmod(version, unit)
    return f"{major}.{rest // 100}.{rest % 100}"


def with_library(description: bytes | memoryview, call: LibraryCall | None) -> bytes:
    """The description of a launch with its library call replaced or removed. Raises msgspec.DecodeError."""
    content = decode_json(description, dict[str, Any])
    content.pop("library", None)
    if call is not None:
        content["library"] = msgspec.to_builtins(call)
    return msgspec.json.format(msgspec.json.encode(content), indent=2)
