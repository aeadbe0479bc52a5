"""Programs with their large constants in one file: safetensors, with the program's text in its metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from motet.artifact.dtypes import SAFETENSORS_NAMES

PROGRAM = "motet.program"  # MLIR text
INTERFACE = "motet.interface"  # what the text does not say of a function imported from PyTorch, JSON


def write_serialized(text: str, parameters: Mapping[str, np.ndarray], interface: str = "") -> bytes:
    """One file with `text` and the arrays that its arguments marked `motet.parameter` name."""
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
