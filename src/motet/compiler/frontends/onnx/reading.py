"""What a model in ONNX is once it is read: the graph as a protobuf, its constants as separate arrays."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.bodies import all_nodes
from motet.compiler.frontends.onnx.constants import take_constants
from motet.compiler.frontends.onnx.data import DataFiles, plain_dtype
from motet.compiler.frontends.onnx.metadata import read_bounds, read_states
from motet.compiler.frontends.onnx.model import OnnxModel, require_onnx
from motet.compiler.protobuf import Content, delimited_fields, delimited_tag
from motet.errors import CompileError, Location

if TYPE_CHECKING:
    import onnx

# Smaller initializers are copied, which is cheaper than mapping.
MAP_BYTES = 64 << 10


# Protobuf reads 100 messages inside each other, and a body is an attribute of a node of a graph.
TOO_DEEP = "bodies of nodes are nested too deep; expected at most 31 inside each other"


def is_too_deep(error: Exception) -> bool:
    """Whether protobuf's error is that messages are nested too deep."""
    return "MaxDepth" in str(error)


def read_model(data: Content | Path, file: str, files: DataFiles | None = None) -> OnnxModel:
    """Parses an ONNX model from bytes, possibly mapped, or a path.

    External data is read from `files`, or below the folder of the path; a model given as bytes has no other source.
    Raises CompileError for a file that is absent, empty, truncated, or not ONNX, and for missing external data.
    """
    require_onnx()
    import onnx
    from google.protobuf.message import DecodeError

    content = _content(data, file)
    location = Location(file)
    if len(content) == 0:
        raise CompileError("empty file; expected an ONNX model", location)
    proto = onnx.ModelProto()
    small, offsets = _without_large_data(content)
    try:
        proto.ParseFromString(small)
    except DecodeError as error:
        if is_too_deep(error):
            raise CompileError(TOO_DEEP, location) from error
        raise CompileError(
            f"not an ONNX model, or truncated ({len(content):,} bytes): {str(error).lower()}; "
            "expected a serialized onnx.ModelProto",
            location,
        ) from error
    _check_parsed(proto, location)
    proto.ir_version = max(proto.ir_version, 4)  # since version 4 inference knows constants that are not inputs
    if files is None and isinstance(data, Path):
        files = DataFiles(str(data))
    model = OnnxModel(proto, file, files=files)
    for tensor in proto.graph.initializer:
        model.constants[tensor.name] = _initializer(tensor, model, content, offsets)
    del proto.graph.initializer[:]
    for sparse in proto.graph.sparse_initializer:
        model.constants[sparse.values.name] = model.value(sparse, f"initializer {sparse.values.name!r}")
    del proto.graph.sparse_initializer[:]
    model.states = read_states(model)
    model.bounds = read_bounds(model)
    take_constants(model)
    _drop_constant_inputs(model)
    return model


def _content(data: Content | Path, file: str) -> Content:
    if not isinstance(data, Path):
        return data
    try:
        with data.open("rb") as stream:
            if data.stat().st_size == 0:
                return b""
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CompileError(f"cannot be read: {reason}; expected an ONNX model", Location(file)) from error


def _check_parsed(proto: onnx.ModelProto, location: Location) -> None:
    """Checks for what every model has: protobuf parses many byte strings that are not models."""
    if not proto.HasField("graph"):
        raise CompileError("not an ONNX model: it has no graph; expected a serialized onnx.ModelProto", location)
    if not proto.opset_import:
        raise CompileError("no operator set imported; expected opset_import in the model", location)
    if not proto.graph.output:
        raise CompileError("the graph has no outputs; expected at least one", location)
    for what, name in _named(proto):
        if isinstance(name, bytes):  # what protobuf makes of a text that is not UTF-8
            raise CompileError(f"the name of {what} is not UTF-8: {name!r}; expected a text", location)


def _named(proto: onnx.ModelProto) -> Iterator[tuple[str, str | bytes]]:
    """All names in the graph, and whose they are."""
    graph = proto.graph
    for what, values in (("an input", graph.input), ("an output", graph.output), ("an initializer", graph.initializer)):
        yield from ((what, value.name) for value in values)
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from ((f"an extent of {value.name!r}", dim.dim_param) for dim in value.type.tensor_type.shape.dim)
    for node in all_nodes(graph):
        yield from (("a node", name) for name in (node.name, node.op_type, node.domain))
        yield from (("a value", name) for name in (*node.input, *node.output))


def _drop_constant_inputs(model: OnnxModel) -> None:
    """Removes initializers from the inputs, where old exporters list them as defaults; their values are used."""
    inputs = model.proto.graph.input
    for index in reversed(range(len(inputs))):
        if inputs[index].name in model.constants:
            del inputs[index]


def _initializer(
    tensor: onnx.TensorProto, model: OnnxModel, content: Content, offsets: dict[str, tuple[int, int]]
) -> np.ndarray:
    """The value of an initializer of the main graph, whose raw data may have been left out of the protobuf."""
    import onnx

    start, size = offsets.get(tensor.name, (0, 0))
    if size and tensor.data_location != onnx.TensorProto.EXTERNAL:
        dtype = plain_dtype(tensor.data_type)
        if dtype is not None and size == dtype.itemsize * math.prod(tensor.dims):
            return np.frombuffer(content, dtype, size // dtype.itemsize, start).reshape(tuple(tensor.dims))
        tensor.raw_data = content[start : start + size]
    return model.value(tensor, f"initializer {tensor.name!r}")


# -- the protobuf without its large data ---------------------------------------------------------

_GRAPH, _INITIALIZER, _NAME, _RAW_DATA = 7, 5, 8, 9  # numbers of fields in onnx.proto


def _without_large_data(content: Content) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """`content` without the raw data of large initializers of the main graph, and their (offset, size) in it by name.
    Malformed protobuf is returned unchanged, for the parser to report."""
    offsets: dict[str, tuple[int, int]] = {}
    if len(content) <= MAP_BYTES:
        return content[:], offsets
    try:
        pieces = _cut(content, 0, len(content), (_GRAPH, _INITIALIZER), offsets)
    except IndexError:
        return content[:], {}
    return (b"".join(pieces), offsets) if offsets else (content[:], offsets)


def _cut(
    content: Content, start: int, end: int, path: tuple[int, ...], offsets: dict[str, tuple[int, int]]
) -> list[bytes]:
    """The message in `[start, end)`, without large raw data in the messages on `path`."""
    pieces: list[bytes] = []
    copied = start
    if not path:
        name, found = "", (0, 0)
        for number, tag, begin, finish in delimited_fields(content, start, end):
            if number == _NAME:
                name = content[begin:finish].decode(errors="replace")
            elif number == _RAW_DATA and finish - begin >= MAP_BYTES:
                pieces.append(content[copied:tag])
                copied, found = finish, (begin, finish - begin)
        if not pieces or name in offsets:
            return [content[start:end]]
        offsets[name] = found
        return [*pieces, content[copied:end]]
    for number, tag, begin, finish in delimited_fields(content, start, end):
        if number == path[0] and finish - begin >= MAP_BYTES:
            inner = _cut(content, begin, finish, path[1:], offsets)
            pieces += [content[copied:tag], delimited_tag(number, sum(map(len, inner))), *inner]
            copied = finish
    return [*pieces, content[copied:end]]
