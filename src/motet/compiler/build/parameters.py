"""Packs a program's parameters into the layouts that its kernels read."""

from __future__ import annotations

import numpy as np

from motet.artifact.dtypes import spelling
from motet.artifact.schema import Parameter
from motet.compiler.kernels.packing import apply_packing
from motet.compiler.scheduling.schedule import ParameterStore

# Arrays by key, and their descriptions in the manifest.
Packed = tuple[dict[str, np.ndarray], list[Parameter]]


def pack_parameters(store: ParameterStore) -> Packed:
    """All parameters, each in the layout in which a kernel reads it."""
    arrays: dict[str, np.ndarray] = {}
    entries: list[Parameter] = []
    for (key, packing, shape), index in store.uses.items():
        array = store.arrays[key]
        name = key
        if packing is not None:
            array = apply_packing(np.asarray(array).reshape(shape), packing)
            array = array.reshape(-1).view(np.uint8)
            name = f"{key}.packed{index}"
        arrays[name] = array
        entries.append(Parameter(name, "ui8" if packing else spelling(array.dtype), list(array.shape)))
    return arrays, entries
