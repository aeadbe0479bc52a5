"""The parameter file: safetensors with every tensor aligned to 64 bytes, and used in place if mapped.

    u64 length of the header · header (JSON, padded with spaces) · data

The format allows no gaps between tensors, so the padding consists of tensors named `__padding__.N`.
Source: the description of the format at https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np

from motet.artifact.dtypes import SAFETENSORS_DTYPES, SAFETENSORS_NAMES, spelling
from motet.decoding import decode_json
from motet.errors import ArtifactError

ALIGNMENT = 64
PADDING = "__padding__."
_HEADER_LIMIT = 100_000_000  # bytes, as the format prescribes


class StoredArray(Protocol):
    """An array to write: a numpy array, or one that is made when numpy asks for it (`__array__`), at each time."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def nbytes(self) -> int: ...

    def __array__(self, dtype: None = None, /, *, copy: bool | None = None) -> np.ndarray: ...


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def encode_parameters(parameters: Mapping[str, StoredArray]) -> Iterator[memoryview]:
    """The parameter file of `parameters`, piece by piece, without copying large arrays.

    Supports arrays of any shape and of the dtypes in `dtypes.SAFETENSORS_NAMES`; raises ArtifactError for other dtypes.
    """
    head, pieces = _lay_out(parameters)
    yield memoryview(head)
    for piece in pieces:
        if piece.nbytes:
            yield np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data


def encoded_size(parameters: Mapping[str, StoredArray]) -> int:
    """The size of `encode_parameters`' output in bytes."""
    head, pieces = _lay_out(parameters)
    return len(head) + sum(piece.nbytes for piece in pieces)


def _lay_out(parameters: Mapping[str, StoredArray]) -> tuple[bytes, list[StoredArray]]:
    """The header and the arrays that follow it."""
    header: dict[str, _Entry] = {}
    pieces: list[StoredArray] = []
    offset = 0
    for key, array in parameters.items():
        name = SAFETENSORS_NAMES.get(array.dtype)
        if name is None:
            raise ArtifactError(f"parameter {key!r}: dtype {array.dtype} cannot be stored")
        gap = -offset % ALIGNMENT
        if gap:
            header[f"{PADDING}{len(header)}"] = _Entry("U8", [gap], (offset, offset + gap))
            pieces.append(np.zeros(gap, np.uint8))
            offset += gap
        header[key] = _Entry(name, list(array.shape), (offset, offset + array.nbytes))
        pieces.append(array)
        offset += array.nbytes
    text = msgspec.json.encode(header)
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return struct.pack("<Q", len(text)) + text, pieces


@dataclass(frozen=True)
class ParameterFile:
    """The tensors of a parameter file, as read-only views of `data`."""

    tensors: dict[str, np.ndarray]

    @staticmethod
    def decode(data: memoryview, where: str) -> ParameterFile:
        """Reads a parameter file; `where` names it in errors. Raises ArtifactError for invalid files."""
        if len(data) < 8:
            raise ArtifactError(f"{where}: cut short: {len(data)} bytes")
        (length,) = struct.unpack_from("<Q", data)
        if length > min(_HEADER_LIMIT, len(data) - 8):
            raise ArtifactError(f"{where}: header of {length} bytes given, file has {len(data)}")
        try:
            header = decode_json(data[8 : 8 + length], dict[str, msgspec.Raw])
            entries = {
                key: decode_json(raw, _Entry)
                for key, raw in header.items()
                if key != "__metadata__"
            }
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ArtifactError(f"{where}: header cannot be read: {error}") from error
        body = data[8 + length :]
        return ParameterFile(
            {
                key: _view(body, entry, f"{where}: tensor {key!r}")
                for key, entry in entries.items()
                if not key.startswith(PADDING)
            }
        )


def _view(body: memoryview, entry: _Entry, where: str) -> np.ndarray:
    dtype: np.dtype[Any] | None = SAFETENSORS_DTYPES.get(entry.dtype)
    if dtype is None:
        raise ArtifactError(f"{where}: dtype {entry.dtype!r} is not known")
    begin, end = entry.data_offsets
    count = 1
    for extent in entry.shape:
        if extent < 0:
            raise ArtifactError(f"{where}: extent {extent} in its shape")
        count *= extent
    if not 0 <= begin <= end <= len(body) or end - begin != count * dtype.itemsize or len(entry.shape) > 64:
        raise ArtifactError(
            f"{where}: bytes {begin} to {end} given for {'x'.join(map(str, entry.shape))}x{spelling(dtype)}; "
            f"the file has {len(body)}"
        )
    array = np.frombuffer(body[begin:end], np.uint8).view(dtype).reshape(entry.shape)
    array.flags.writeable = False
    return array
