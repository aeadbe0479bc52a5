"""Code on a GPU: the kernels of a variant, each a binary or PTX and a description of its launch.

A kernel K consists of two objects, `…/K.cubin` or `…/K.ptx` and `…/K.json`, a `Launch` (`artifact/launch.py`):

    {"kernel": "K", "entry": "k_0", "warps": 4, "ctas": 1, "shared": 49152, "scratch": 0, "registers": 64,
     "spills": 0, "buffers": 3, "sizes": ["i32", "i32"], "waits": true}

Other objects (`K.py`, the source) are ignored. `library`, if present, is an equivalent call of cuBLASLt
(`artifact/library.py`), which runs instead of the kernel if the library is installed and supports it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import msgspec
import numpy as np

from motet.artifact.launch import Launch
from motet.artifact.library import UnknownLibrary, read_call
from motet.artifact.schema import Variant
from motet.decoding import decode_json
from motet.errors import DeviceError
from motet.runtime.drivers.common.lifetime import OwnedResources
from motet.runtime.drivers.common.streams import Handle
from motet.runtime.drivers.cuda.core import CudaCore
from motet.runtime.drivers.cuda.cublaslt import CublasError, Matmul, Products
from motet.runtime.drivers.cuda.modules import Modules

FAMILY = "cuda"
WARP = 32  # threads
_CLUSTERS = (1, 2, 4, 8)  # blocks; the binary specifies it, too, and the grid is a multiple of it
_RESERVED = 1 << 10  # bytes of shared memory that the driver reserves per block
_PLAIN_SHARED = 48 << 10  # bytes of shared memory allowed for every kernel
_BINARIES = (".cubin", ".ptx")
_IGNORED = (".py", ".ttir", ".ttgir", ".llir")
_FEATURE = re.compile(r"sm_(\d+)(\d)(a|f)?|ptx(\d+)(\d)")
_OWN_CODE = 9, 0  # from this compute capability on, targets like 90a run on one architecture only
_SIZES: Mapping[str, tuple[int, int]] = {"i32": (-(1 << 31), 1 << 32), "i64": (-(1 << 63), 1 << 63)}


@dataclass(frozen=True)
class CudaKernel:
    """A loaded kernel; `matmul`, if set, runs in its place."""

    facts: Launch
    function: Handle
    matmul: Matmul | None = None

    @property
    def threads(self) -> int:
        return self.facts.threads or self.facts.warps * WARP


class CudaExecutable:
    """See `motet.runtime.device.Executable`. `notes` list kernels whose library call could not be used."""

    def __init__(
        self, device: CudaCore, kernels: Mapping[str, CudaKernel], resources: OwnedResources, notes: Sequence[str] = ()
    ) -> None:
        self.device = device
        self._resources = resources
        self.by_name = dict(kernels)
        self.notes = tuple(notes)

    @property
    def kernels(self) -> Sequence[str]:
        return list(self.by_name)


def obstacle(variant: Variant, capability: tuple[int, int]) -> str | None:
    """Why a GPU of a compute capability cannot run a variant; None if it can."""
    if variant.family != FAMILY:
        return f"for {variant.family} devices"
    own = f"sm_{capability[0]}{capability[1]}"
    best = own + "a" * (capability >= _OWN_CODE)
    for feature in variant.features or [variant.target]:
        match = _FEATURE.fullmatch(feature)
        if match is None:
            return f"needs {feature}, which no GPU is known to have"
        if not _runs(match, capability):
            return f"its code is for {feature}, and this GPU is {own}; compile it with cuda{{arch={best}}}"
    return None


def _runs(feature: re.Match[str], capability: tuple[int, int]) -> bool:
    major, minor, kind, ptx_major, ptx_minor = feature.groups()
    if ptx_major is not None:
        return capability >= (int(ptx_major), int(ptx_minor))
    needed = (int(major), int(minor))
    if kind == "a":
        return capability == needed
    return capability[0] == needed[0] and capability[1] >= needed[1]


def load_kernels(
    device: str, modules: Modules, resources: OwnedResources, objects: Sequence[bytes], names: Sequence[str],
    most_shared: int,
) -> dict[str, CudaKernel]:
    """Load `objects`, named `names`, into modules owned by `resources`. Raises DeviceError, and CudaError if the GPU is
    lost."""
    images: dict[str, tuple[str, bytes]] = {}
    facts: dict[str, tuple[str, Launch]] = {}
    for index, content in enumerate(objects):
        name = names[index] if index < len(names) else f"object {index}"
        path = PurePosixPath(name)
        if path.suffix in _BINARIES:
            images[path.stem] = (name, content)
        elif path.suffix == ".json":
            facts[path.stem] = (name, _read_facts(device, name, content))
        elif path.suffix not in _IGNORED:
            raise DeviceError(f"device {device}: load: {name}: expected .cubin, .ptx or .json")
    if lonely := images.keys() ^ facts.keys():
        stem = min(lonely)
        name, missing = (images[stem][0], "description .json") if stem in images else (facts[stem][0], "binary")
        raise DeviceError(f"device {device}: load: {name}: its {missing} is not there")
    for name, described in facts.values():
        _check_facts(device, name, described, most_shared)
    loaded = modules.load({content: name for name, content in images.values()}, resources)
    kernels: dict[str, CudaKernel] = {}
    for stem, (name, content) in images.items():
        described = facts[stem][1]
        if described.kernel in kernels:
            raise DeviceError(f"device {device}: load: {name}: kernel {described.kernel} is there twice")
        function = modules.function(name, loaded[content], described.entry, _more_shared(described, most_shared))
        kernels[described.kernel] = CudaKernel(described, function)
    return kernels


def with_products(
    device: str, kernels: Mapping[str, CudaKernel], products: Products, resources: OwnedResources
) -> tuple[dict[str, CudaKernel], list[str]]:
    """`kernels` with those library calls that the library supports, and notes about the others. Call with the device's
    context current. Raises DeviceError for damaged calls."""
    found = dict(kernels)
    refused: dict[str, list[str]] = {}
    for name, kernel in kernels.items():
        if kernel.facts.library is None:
            continue
        try:
            call = read_call(kernel.facts.library, kernel.facts.buffers)
            matmul = products.library().prepare(call)
        except (UnknownLibrary, CublasError) as error:
            refused.setdefault(str(error), []).append(name)
            continue
        except ValueError as error:
            raise DeviceError(f"device {device}: load: kernel {name}: {error}") from error
        resources.add(matmul.destroy)
        found[name] = replace(kernel, matmul=matmul)
    return found, [f"{_listed(names)} as generated, without cuBLASLt: {why}" for why, names in refused.items()]


def _listed(names: Sequence[str]) -> str:
    return f"kernel {names[0]} runs" if len(names) == 1 else f"kernel {names[0]} and {len(names) - 1} more run"


def _read_facts(device: str, name: str, content: bytes) -> Launch:
    try:
        return decode_json(content, Launch)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DeviceError(f"device {device}: load: {name}: {error}") from error


def _check_facts(device: str, name: str, facts: Launch, most_shared: int) -> None:
    if facts.ctas not in _CLUSTERS:
        raise DeviceError(f"device {device}: load: {name}: {facts.ctas} blocks a cluster; expected 1, 2, 4 or 8")
    if not 1 <= facts.warps <= 32:
        raise DeviceError(f"device {device}: load: {name}: {facts.warps} warps; expected 1 to 32")
    if not 0 <= facts.threads <= facts.warps * WARP:
        raise DeviceError(
            f"device {device}: load: {name}: {facts.threads} threads; expected 0 to {facts.warps * WARP}, for "
            f"{facts.warps} warps"
        )
    if facts.buffers < 0 or facts.shared < 0 or facts.scratch < 0:
        raise DeviceError(f"device {device}: load: {name}: a negative number; expected 0 or more")
    if facts.shared > most_shared:
        raise DeviceError(
            f"device {device}: load: {name}: {facts.shared:,} bytes of shared memory; this GPU has {most_shared:,}"
        )
    if unknown := [size for size in facts.sizes if size not in _SIZES]:
        raise DeviceError(f"device {device}: load: {name}: a size of type {unknown[0]}; expected {' or '.join(_SIZES)}")


def _more_shared(facts: Launch, most: int) -> int:
    """The shared memory to request from the driver; 0 if the default suffices."""
    if facts.shared <= _PLAIN_SHARED:
        return 0
    return max(facts.shared, alone(most)) if facts.waits else facts.shared


def alone(most: int) -> int:
    """The least shared memory with which a block occupies an SM alone, if a block may have `most`."""
    return min(most, -(-(most + _RESERVED) // 2 // _RESERVED) * _RESERVED)


def pack_size(value: int, kind: str) -> int | None:
    """The eight bytes, as an int, of a parameter of this type with `value`; None if it does not fit."""
    least, beyond = _SIZES[kind]
    return int(np.uint64(value % (1 << 64))) if least <= value < beyond else None
