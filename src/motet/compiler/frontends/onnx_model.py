"""Reads ONNX files: the graph as a protobuf, its constants as arrays beside it.

Large data of initializers never enters the protobuf. What lies in a file (external data, or the raw data of an
initializer in the model file itself) is memory-mapped, not copied. Every way in which a file can be wrong is one
`CompileError` that names the file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.errors import CompileError, Location

if TYPE_CHECKING:
    import onnx

# Below this size an initializer is copied: mapping it would cost more than it saves.
MAP_BYTES = 64 << 10


@dataclass
class OnnxModel:
    """`proto` is the model without initializers, `constants` their values by name, `file` what to call it. Where it is
    `inner`, it is a body of another model, which has the same constants."""

    proto: onnx.ModelProto
    file: str
    constants: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    inner: bool = False

    @property
    def opsets(self) -> dict[str, int]:
        """Version of each imported operator set; the default domain is the empty string."""
        return {_domain(entry.domain): entry.version for entry in self.proto.opset_import}

    def error(self, message: str) -> CompileError:
        return CompileError(message, Location(self.file))


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def require_onnx() -> None:
    """Raise CompileError when the `onnx` package is absent."""
    try:
        import onnx  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as error:
        raise CompileError('reading ONNX needs the package onnx; install it: pip install "motet[onnx]"') from error


def read_model(data: bytes | mmap.mmap | Path, file: str) -> OnnxModel:
    """Parse an ONNX model from bytes, mapped ones as well, or a path.

    External data is looked for beside the path; a model given as bytes cannot have any.
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
        raise CompileError(
            f"not an ONNX model, or truncated ({len(content):,} bytes): {str(error).lower()}; "
            "expected a serialized onnx.ModelProto",
            location,
        ) from error
    _check_parsed(proto, location)
    model = OnnxModel(proto, file)
    folder = data.parent if isinstance(data, Path) else None
    for tensor in proto.graph.initializer:
        model.constants[tensor.name] = _array(tensor, model, folder, content, offsets)
    del proto.graph.initializer[:]
    _drop_constant_inputs(model)
    return model


def _content(data: bytes | mmap.mmap | Path, file: str) -> bytes | mmap.mmap:
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
    """Protobuf accepts many byte strings that are no models: look for what every model has."""
    if not proto.HasField("graph"):
        raise CompileError("not an ONNX model: it has no graph; expected a serialized onnx.ModelProto", location)
    if not proto.opset_import:
        raise CompileError("no operator set imported; expected opset_import in the model", location)
    if not proto.graph.output:
        raise CompileError("the graph has no outputs; expected at least one", location)


def _drop_constant_inputs(model: OnnxModel) -> None:
    """Old exporters list initializers among the inputs, as defaults; the value is what counts."""
    inputs = model.proto.graph.input
    for index in reversed(range(len(inputs))):
        if inputs[index].name in model.constants:
            del inputs[index]


def _array(
    tensor: onnx.TensorProto,
    model: OnnxModel,
    folder: Path | None,
    content: bytes | mmap.mmap,
    offsets: dict[str, tuple[int, int]],
) -> np.ndarray:
    import onnx

    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, model, folder)
    try:
        start, size = offsets.get(tensor.name, (0, 0))
        dtype = _plain_dtype(tensor.data_type)
        if dtype is not None and size == dtype.itemsize * int(np.prod(tensor.dims)) >= MAP_BYTES:
            return np.frombuffer(content, dtype, size // dtype.itemsize, start).reshape(tuple(tensor.dims))
        if size:
            tensor.raw_data = content[start : start + size]
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        kind = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
        what = f"initializer {tensor.name!r}: data does not fit {kind} {list(tensor.dims)}: {error}"
        raise model.error(what) from error


def _plain_dtype(data_type: int) -> np.dtype[Any] | None:
    """The numpy type whose bytes are those of the file; None for packed types and strings."""
    import onnx

    packed = {
        getattr(onnx.TensorProto, name)
        for name in ("STRING", "UNDEFINED", "INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1")
        if hasattr(onnx.TensorProto, name)
    }
    return None if data_type in packed else np.dtype(onnx.helper.tensor_dtype_to_np_dtype(data_type))


def _external(tensor: onnx.TensorProto, model: OnnxModel, folder: Path | None) -> np.ndarray:
    """Map a tensor whose data lies in a file beside the model."""
    where = {entry.key: entry.value for entry in tensor.external_data}
    name = where.get("location", "")
    if folder is None:
        raise model.error(
            f"initializer {tensor.name!r}: its data is in the file {name!r}, "
            "but the model was given as bytes; give the path of the model"
        )
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise model.error(f"initializer {tensor.name!r}: external data {name!r} lies outside the model's folder")
    dtype = _plain_dtype(tensor.data_type)
    if dtype is None:
        raise model.error(f"initializer {tensor.name!r}: external data of a packed or string type is not supported")
    shape = tuple(tensor.dims)
    offset, needed = int(where.get("offset", 0)), dtype.itemsize * int(np.prod(shape))
    try:
        available = path.stat().st_size
    except OSError as error:
        raise model.error(
            f"initializer {tensor.name!r}: its external data file {name!r} is missing; expected it at {path}"
        ) from error
    if offset + needed > available:
        raise model.error(
            f"initializer {tensor.name!r}: external data file {name!r} is too short: "
            f"expected {needed:,} bytes at offset {offset:,}, the file has {available:,}"
        )
    if needed == 0:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape)


# -- the protobuf without what is large in it ----------------------------------------------------

_GRAPH, _INITIALIZER, _NAME, _RAW_DATA = 7, 5, 8, 9  # numbers of fields in onnx.proto


def _without_large_data(content: bytes | mmap.mmap) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """`content` without the raw data of large initializers of the main graph, and where those are in it, (offset, size)
    by name. What is no protobuf stays as it is: whoever parses it says so."""
    offsets: dict[str, tuple[int, int]] = {}
    if len(content) <= MAP_BYTES:
        return content[:], offsets
    try:
        pieces = _cut(content, 0, len(content), (_GRAPH, _INITIALIZER), offsets)
    except IndexError:
        return content[:], {}
    return (b"".join(pieces), offsets) if offsets else (content[:], offsets)


def _cut(
    content: bytes | mmap.mmap, start: int, end: int, path: tuple[int, ...], offsets: dict[str, tuple[int, int]]
) -> list[bytes]:
    """The message from `start` to `end`, without large raw data in the messages that `path` leads to."""
    pieces: list[bytes] = []
    copied = start
    if not path:
        name, found = "", (0, 0)
        for number, tag, begin, finish in _fields(content, start, end):
            if number == _NAME:
                name = content[begin:finish].decode(errors="replace")
            elif number == _RAW_DATA and finish - begin >= MAP_BYTES:
                pieces.append(content[copied:tag])
                copied, found = finish, (begin, finish - begin)
        if not pieces or name in offsets:
            return [content[start:end]]
        offsets[name] = found
        return [*pieces, content[copied:end]]
    for number, tag, begin, finish in _fields(content, start, end):
        if number == path[0] and finish - begin >= MAP_BYTES:
            inner = _cut(content, begin, finish, path[1:], offsets)
            pieces += [content[copied:tag], _tag(number, sum(map(len, inner))), *inner]
            copied = finish
    return [*pieces, content[copied:end]]


def _tag(number: int, length: int) -> bytes:
    """What stands before a length-delimited field."""
    encoded = bytearray([number << 3 | 2])  # no number here has more than four bits
    while length > 127:
        encoded.append(length & 127 | 128)
        length >>= 7
    return bytes([*encoded, length])


def _fields(content: bytes | mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The length-delimited fields of one protobuf message: number, where the field begins, where its content begins and
    ends. Others are stepped over. Raises IndexError for what is none.

    Source: protobuf.dev/programming-guides/encoding.
    """
    position = start
    while position < end:
        begin = position
        tag, position = _varint(content, position)
        wire = tag & 7
        if wire == 0:
            _, position = _varint(content, position)
        elif wire == 1:
            position += 8
        elif wire == 5:
            position += 4
        elif wire == 2:
            size, position = _varint(content, position)
            if position + size > end:
                raise IndexError("a field that ends behind its message")
            yield tag >> 3, begin, position, position + size
            position += size
        else:  # groups do not occur in onnx.proto
            raise IndexError("a group")


def _varint(content: bytes | mmap.mmap, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
