"""Programs and their large constants in one file: safetensors, with the program's text in its metadata."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np

from motet.artifact.dtypes import SAFETENSORS_NAMES

PROGRAM = "motet.program"  # MLIR text
INTERFACE = "motet.interface"  # the signature of a function imported from PyTorch, JSON

_BEGINNING = json.dumps({"__metadata__": {PROGRAM: ""}}).encode().removesuffix(b'"}}')  # of the header
HEADER_LIMIT = 100 << 20  # bytes, as in safetensors


def is_serialized(data: bytes | mmap.mmap) -> bool:
    """Whether `data` begins like the output of `write_serialized`; the end may be missing."""
    return data[8 : 8 + len(_BEGINNING)] == _BEGINNING and header_size(data) <= HEADER_LIMIT


def header_size(data: bytes | mmap.mmap) -> int:
    return int.from_bytes(data[:8], "little")


def write_serialized(text: str, parameters: Mapping[str, np.ndarray], interface: str = "") -> bytes:
    """A file with `text` and the arrays of its arguments marked `motet.parameter`."""
    metadata = {PROGRAM: text, INTERFACE: interface} if interface else {PROGRAM: text}
    header: dict[str, Any] = {"__metadata__": metadata}
    arrays = [np.ascontiguousarray(array) for array in parameters.values()]
    offset = 0
    for key, array in zip(parameters, arrays, strict=True):
        span = [offset, offset + array.nbytes]
        header[key] = {"dtype": SAFETENSORS_NAMES[array.dtype], "shape": array.shape, "data_offsets": span}
        offset += array.nbytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return b"".join([len(encoded).to_bytes(8, "little"), encoded, *(array.tobytes() for array in arrays)])
