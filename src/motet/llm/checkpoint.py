"""Weights of a checkpoint: files of safetensors, mapped and not copied.

Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from motet.artifact.dtypes import SAFETENSORS_DTYPES
from motet.errors import OptionError

_DTYPES = {name: SAFETENSORS_DTYPES[name] for name in ("F32", "F16", "BF16", "F64")}


def read_weights(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of the safetensors files in `folder`, by name. Raises OptionError for a damaged file."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise OptionError(f"{folder}: it has no weights; expected files *.safetensors")
    weights: dict[str, np.ndarray] = {}
    for file in files:
        weights.update(_tensors(file))
    return weights


def _tensors(file: Path) -> dict[str, np.ndarray]:
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or length > size - 8:
            raise OptionError(f"{file}: truncated: the header has {length:,} bytes, the file {size:,}")
        try:
            header = json.loads(opened.read(length))
        except ValueError as error:
            raise OptionError(f"{file}: its header is not JSON: {error}; expected a safetensors file") from None
    if not isinstance(header, dict):
        raise OptionError(f"{file}: its header is not a JSON object; expected a safetensors file")
    if size == 8 + length:
        return {}
    data = np.memmap(file, np.uint8, "r", 8 + length)
    return {name: _tensor(file, name, data, facts) for name, facts in header.items() if name != "__metadata__"}


def _tensor(file: Path, name: str, data: np.ndarray, facts: Any) -> np.ndarray:
    try:
        kind, shape, (begin, end) = facts["dtype"], [int(extent) for extent in facts["shape"]], facts["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise OptionError(f"{file}: {name}: its entry has no dtype, shape and offsets; expected a safetensors file"
                          ) from None
    if kind not in _DTYPES:
        raise OptionError(f"{file}: {name}: its dtype is {kind}; expected one of {', '.join(_DTYPES)}")
    bytes_needed = math.prod(shape) * _DTYPES[kind].itemsize
    if min(shape, default=0) < 0 or not 0 <= begin <= end <= data.size or end - begin != bytes_needed:
        raise OptionError(f"{file}: {name}: truncated or damaged: bytes {begin} to {end} of {data.size:,}; its shape "
                          f"needs {bytes_needed:,}")
    return data[begin:end].view(_DTYPES[kind]).reshape(shape)
