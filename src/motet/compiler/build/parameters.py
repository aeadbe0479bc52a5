"""Packs a program's parameters into the layouts that its kernels read, one at a time, when they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from motet.artifact.dtypes import spelling
from motet.artifact.parameters import StoredArray
from motet.artifact.schema import Parameter
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.packing import apply_packing, packed_elements
from motet.compiler.scheduling.schedule import ParameterStore

# Arrays by key, and their descriptions in the manifest.
Packed = tuple[Mapping[str, StoredArray], list[Parameter]]


@dataclass(frozen=True, eq=False)
class PackedArray:
    """The bytes of `source` in the layout of `packing`. Each read packs it again, so that a compiler needs memory for
    one packed parameter at a time, not for all."""

    source: np.ndarray
    packing: Packing

    @property
    def nbytes(self) -> int:
        return packed_elements(self.source.shape, self.packing) * self.source.itemsize

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.nbytes,)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    def __array__(self, dtype: None = None, /, *, copy: bool | None = None) -> np.ndarray:
        return apply_packing(self.source, self.packing).reshape(-1).view(np.uint8)


def pack_parameters(store: ParameterStore) -> Packed:
    """All parameters, each in the layout in which a kernel reads it."""
    arrays: dict[str, StoredArray] = {}
    entries: list[Parameter] = []
    for (key, packing, shape), index in store.uses.items():
        array: StoredArray = store.arrays[key]
        name = key
        if packing is not None:
            array = PackedArray(np.asarray(array).reshape(shape), packing)
            name = f"{key}.packed{index}"
        arrays[name] = array
        entries.append(Parameter(name, "ui8" if packing else spelling(array.dtype), list(array.shape)))
    return arrays, entries
