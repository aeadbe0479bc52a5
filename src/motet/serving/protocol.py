"""Tensors and messages of the KServe v2 inference protocol, in JSON and in its extension for binary tensors.

A message is a JSON object. With the extension, its length is in the header Inference-Header-Content-Length, and the
bytes of tensors with the parameter `binary_data_size` follow it, in order, little-endian and row-major.

Source: kserve.github.io, "Open Inference Protocol V2", and Triton's "Binary tensor data extension".
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import msgspec
import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.artifact.schema import TensorSpec
from motet.errors import CallError
from motet.runtime.tensors import Array
from motet.serving.errors import RequestError

HEADER_LENGTH = "inference-header-content-length"
BINARY = "application/octet-stream"
JSON = "application/json"

_NAMES: dict[np.dtype[Any], str] = {
    np.dtype(np.bool_): "BOOL",
    np.dtype(np.int8): "INT8", np.dtype(np.int16): "INT16", np.dtype(np.int32): "INT32", np.dtype(np.int64): "INT64",
    np.dtype(np.uint8): "UINT8", np.dtype(np.uint16): "UINT16",
    np.dtype(np.uint32): "UINT32", np.dtype(np.uint64): "UINT64",
    np.dtype(np.float16): "FP16", np.dtype(np.float32): "FP32", np.dtype(np.float64): "FP64",
    np.dtype(ml_dtypes.bfloat16): "BF16",
}  # fmt: skip
NAMES = tuple(_NAMES.values())


@dataclass(frozen=True)
class Port:
    """An input or result of a served function: `name` and `datatype` as in the protocol; a dynamic extent is -1."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spec: TensorSpec

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


def port_of(spec: TensorSpec, default_name: str) -> Port:
    """The port of a tensor. Raises CallError for an element type that the protocol lacks."""
    dtype = DTYPES[spec.dtype]
    if dtype not in _NAMES:
        raise CallError(f"{spec.name or default_name}: {spec.dtype} elements; the protocol has {', '.join(NAMES)}")
    shape = tuple(extent if isinstance(extent, int) else -1 for extent in spec.shape)
    return Port(spec.name or default_name, _NAMES[dtype], shape, dtype, spec)


# -- requests ------------------------------------------------------------------------------------------------


class _TensorMessage(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] = {}
    data: msgspec.Raw = msgspec.Raw()


class _OutputMessage(msgspec.Struct):
    name: str
    parameters: dict[str, Any] = {}


class _Message(msgspec.Struct):
    inputs: list[_TensorMessage]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[_OutputMessage] | None = None


_MESSAGES = msgspec.json.Decoder(_Message)


@dataclass(frozen=True)
class InferenceRequest:
    """The inputs of a call in the order of the function's, and the results that are asked for: each with whether it is
    sent as binary data."""

    id: str
    inputs: list[Array]
    wanted: list[tuple[int, bool]]


def read_request(
    body: bytes, header_length: int | None, inputs: Sequence[Port], results: Sequence[Port]
) -> InferenceRequest:
    """Reads the body of an inference request. Raises RequestError, status 400, for one that is not valid."""
    head, rest = _split(body, header_length)
    message = _decode(head, _MESSAGES, "the request")
    arrays = _read_tensors(message.inputs, inputs, rest)
    return InferenceRequest(message.id, arrays, _wanted(message, results))


def _split(body: bytes, header_length: int | None) -> tuple[memoryview, memoryview]:
    """The JSON and the binary part of a body."""
    view = memoryview(body)
    length = len(view) if header_length is None else header_length
    if length > len(view):
        raise RequestError(400, f"{HEADER_LENGTH}: {length} given; the body has {len(view)} bytes")
    return view[:length], view[length:]


def _decode(data: bytes | memoryview | msgspec.Raw, decoder: msgspec.json.Decoder[Any], what: str) -> Any:
    try:
        return decoder.decode(data)
    except RecursionError:
        raise RequestError(400, f"{what}: nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        text = str(error)
        raise RequestError(400, f"{what}: {text if text[1:2].isupper() else text[:1].lower() + text[1:]}") from None


def _read_tensors(tensors: Sequence[_TensorMessage], ports: Sequence[Port], rest: memoryview) -> list[Array]:
    """The arrays of the inputs, in the order of `ports`; `rest` is the binary part of the body."""
    by_name = {port.name: index for index, port in enumerate(ports)}
    found: list[Array | None] = [None] * len(ports)
    for tensor in tensors:
        index = by_name.get(tensor.name)
        if index is None:
            raise RequestError(400, f"input {tensor.name[:80]!r}: no such input; the model's: {_list(ports)}")
        if found[index] is not None:
            raise RequestError(400, f"input {tensor.name!r}: given twice")
        _check_type(tensor, ports[index])
        size = tensor.parameters.get("binary_data_size")
        if size is None:
            found[index] = _from_json(tensor, ports[index])
        else:
            found[index], rest = _from_binary(tensor, ports[index], size, rest)
    missing = [port.name for port, array in zip(ports, found, strict=True) if array is None]
    if missing:
        raise RequestError(400, f"inputs not given: {', '.join(missing)}; the model's inputs: {_list(ports)}")
    if len(rest):
        raise RequestError(400, f"the body has {len(rest)} bytes after the last binary tensor")
    return [array for array in found if array is not None]


def _list(ports: Sequence[Port]) -> str:
    return ", ".join(port.name for port in ports) or "none"


def _check_type(tensor: _TensorMessage, port: Port) -> None:
    where = f"input {port.name!r}"
    # Signless integers are what the program makes of them: both names are right.
    signless = port.spec.dtype.startswith("i") and port.dtype.kind == "i"
    if tensor.datatype != port.datatype and not (signless and tensor.datatype == f"U{port.datatype}"):
        raise RequestError(400, f"{where}: datatype {tensor.datatype[:40]!r} given, {port.datatype} expected")
    matches = len(tensor.shape) == len(port.shape) and all(
        given == expected or (expected < 0 <= given) for given, expected in zip(tensor.shape, port.shape, strict=True)
    )
    if not matches:
        raise RequestError(400, f"{where}: shape {_short(tensor.shape)} given, {list(port.shape)} expected")


def _short(shape: Sequence[int]) -> str:
    return str(list(shape)) if len(shape) <= 16 else f"of {len(shape)} extents"


def _given_dtype(tensor: _TensorMessage, port: Port) -> np.dtype[Any]:
    if tensor.datatype == port.datatype:
        return port.dtype
    return np.dtype(f"u{port.dtype.name}")


def _from_binary(tensor: _TensorMessage, port: Port, size: Any, rest: memoryview) -> tuple[Array, memoryview]:
    """The array of a binary tensor, and the bytes after it."""
    where = f"input {port.name!r}"
    expected = math.prod(tensor.shape) * port.dtype.itemsize
    if type(size) is not int or size != expected:
        raise RequestError(400, f"{where}: binary_data_size {str(size)[:40]} given; shape {_short(tensor.shape)} of "
                                f"{tensor.datatype} has {expected} bytes")  # fmt: skip
    if len(tensor.data):
        raise RequestError(400, f"{where}: both data and binary_data_size given")
    if size > len(rest):
        raise RequestError(400, f"{where}: {size} bytes expected after the JSON, {len(rest)} are there")
    part = rest[:size]
    if port.dtype.kind == "b" and np.frombuffer(part, np.uint8).max(initial=0) > 1:
        raise RequestError(400, f"{where}: a BOOL that is neither 0 nor 1")
    little = port.dtype if sys.byteorder == "little" else port.dtype.newbyteorder("<")
    array = np.frombuffer(part, little).astype(port.dtype, copy=False).reshape(tensor.shape)
    return _aligned(array), rest[size:]


def _aligned(array: Array) -> Array:
    """`array`, copied where the JSON before it has a length that leaves it at an odd address."""
    return array if array.flags.aligned else array.copy()


def _from_json(tensor: _TensorMessage, port: Port) -> Array:
    """The array of a tensor whose elements are in the JSON, flat or nested as its shape."""
    where = f"input {port.name!r}"
    if not len(tensor.data):
        raise RequestError(400, f"{where}: neither data nor binary_data_size given")
    count = math.prod(tensor.shape)
    raw = bytes(memoryview(tensor.data))
    if count > len(raw):  # before anything of that size is allocated
        raise RequestError(400, f"{where}: data has fewer elements than the {count} of shape {_short(tensor.shape)}")
    depth, rank = _depth(raw), len(tensor.shape)
    if depth not in (1, rank):
        raise RequestError(400, f"{where}: data is nested {depth} deep; expected a flat array of {count} numbers, or "
                                f"one nested as shape {_short(tensor.shape)}")  # fmt: skip
    kind: Any = {"b": bool, "i": int, "u": int}.get(port.dtype.kind, float)
    for _ in range(depth):
        kind = list[kind]
    values = _decode(raw, msgspec.json.Decoder(kind), f"{where}: data")
    array = _to_array(values, _given_dtype(tensor, port), where)
    if array.shape != tuple(tensor.shape) and array.shape != (count,):
        raise RequestError(400, f"{where}: data has shape {_short(array.shape)}, {_short(tensor.shape)} expected")
    return array.reshape(tensor.shape)


def _depth(raw: bytes) -> int:
    """The number of brackets that open before the first element."""
    depth = 0
    for byte in raw:
        if byte == ord("["):
            depth += 1
        elif byte not in b" \t\r\n":
            break
    return depth


def _to_array(values: Any, dtype: np.dtype[Any], where: str) -> Array:
    """An array of parsed numbers. Raises RequestError where one does not fit, or rows differ in length."""
    try:
        if dtype.kind in "biu":
            return np.array(values, dtype)
        wide = np.array(values, np.float64)
        with np.errstate(over="ignore"):
            array = wide.astype(dtype)
    except OverflowError:
        raise RequestError(400, f"{where}: a number that {_NAMES[dtype]} cannot represent") from None
    except ValueError:
        raise RequestError(400, f"{where}: data has rows of different lengths") from None
    if not np.isfinite(array).all():  # JSON has no infinity: it is an overflow
        raise RequestError(400, f"{where}: a number that {_NAMES[dtype]} cannot represent")
    return array


def _wanted(message: _Message, results: Sequence[Port]) -> list[tuple[int, bool]]:
    every = _flag(message.parameters, "binary_data_output", False)
    if not message.outputs:
        return [(index, every) for index in range(len(results))]
    by_name = {port.name: index for index, port in enumerate(results)}
    wanted: list[tuple[int, bool]] = []
    for output in message.outputs:
        if output.name not in by_name:
            raise RequestError(400, f"output {output.name[:80]!r}: no such output; the model's: {_list(results)}")
        if any(by_name[output.name] == index for index, _ in wanted):
            raise RequestError(400, f"output {output.name!r}: asked for twice")
        wanted.append((by_name[output.name], _flag(output.parameters, "binary_data", every)))
    return wanted


def _flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise RequestError(400, f"parameter {name}: {str(value)[:40]!r} given, true or false expected")
    return value


# -- responses -----------------------------------------------------------------------------------------------


def write_response(
    model: str, request: InferenceRequest, values: Sequence[Array], results: Sequence[Port]
) -> tuple[bytes, int | None]:
    """The body of a response, and the length of its JSON if binary tensors follow it.

    Raises RequestError, status 406, for NaN and infinity in a result that is asked for as JSON.
    """
    outputs: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for index, binary in request.wanted:
        port, array = results[index], np.ascontiguousarray(values[index])
        entry: dict[str, Any] = {"name": port.name, "datatype": port.datatype, "shape": list(values[index].shape)}
        if binary:
            little = array if sys.byteorder == "little" else array.astype(array.dtype.newbyteorder("<"))
            parts.append(little.tobytes())
            entry["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            entry["data"] = _numbers(array, port)
        outputs.append(entry)
    message: dict[str, Any] = {"model_name": model, "model_version": "1", "outputs": outputs}
    if request.id:
        message["id"] = request.id
    head = msgspec.json.encode(message)
    return b"".join((head, *parts)), len(head) if parts else None


def _numbers(array: Array, port: Port) -> list[Any]:
    if port.datatype == "BF16":
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise RequestError(406, f"output {port.name!r}: NaN or infinity, which JSON lacks; ask for it with the "
                                "parameter binary_data")  # fmt: skip
    return array.ravel().tolist()
