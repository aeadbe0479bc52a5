"""Loads code on a GPU: machine code directly, PTX compiled by the driver once for each driver version and GPU model.

The compiled code is stored in Motet's cache (`motet/cache.py`), so that other processes load machine code. PTX is
compiled by several threads; modules are loaded by one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from motet.cache import Cache
from motet.errors import DeviceError
from motet.runtime.drivers.common.lifetime import OwnedResources
from motet.runtime.drivers.common.streams import Handle
from motet.runtime.drivers.cuda import faults
from motet.runtime.drivers.cuda.api import CudaApi, CudaError
from motet.runtime.drivers.cuda.lifetime import Current

_ELF = b"\x7fELF"
_MOST_THREADS = 8
_NO_BINARY, _PTX_TOO_NEW = 209, 222  # codes of the driver


class Modules:
    """Loads modules on one GPU of compute capability `capability`; errors name `device`."""

    def __init__(self, device: str, api: CudaApi, current: Current, capability: tuple[int, int]) -> None:
        self._device = device
        self._api = api
        self._current = current
        self._capability = capability

    def load(self, images: Mapping[bytes, str], resources: OwnedResources) -> dict[bytes, Handle]:
        """Load the modules of `images`, owned by `resources`; the values are names for errors. Raises DeviceError, and
        CudaError if the GPU is lost."""
        codes = self._compiled([image for image in images if not image.startswith(_ELF)])
        return {image: self._load(name, image, codes.get(image), resources) for image, name in images.items()}

    def _compiled(self, texts: Sequence[bytes]) -> dict[bytes, bytes]:
        """PTX compiled to machine code; texts that fail to compile are omitted."""
        if not texts:
            return {}
        cache = Cache()
        keys = {text: self._key(text) for text in texts}
        found = {text: kept for text, key in keys.items() if (kept := cache.get(key)) is not None}

        def compile_one(text: bytes) -> tuple[bytes, bytes] | None:
            with suppress(CudaError), self._current:  # loading the text then reports the error
                return text, self._api.compile_ptx(text)
            return None

        if missing := [text for text in texts if text not in found]:
            threads = min(_MOST_THREADS, os.cpu_count() or 1, len(missing))
            with ThreadPoolExecutor(threads, "motet cuda code") as pool:
                made = dict(item for item in pool.map(compile_one, missing) if item is not None)
            for text, code in made.items():
                cache.put(keys[text], code)
            found |= made
        return found

    def function(self, name: str, module: Handle, entry: str, shared: int) -> Handle:
        """A kernel of a module with `shared` bytes of shared memory allowed. Raises like `load`."""
        try:
            function = self._api.module_function(module, entry)
            if shared:
                self._api.allow_shared(function, shared)
        except CudaError as error:
            raise self._refused(f"{name}: {entry}", error) from error
        return function

    def _load(self, name: str, image: bytes, code: bytes | None, resources: OwnedResources) -> Handle:
        api = self._api
        try:
            module = api.module_load(code or image)
        except CudaError as error:
            raise self._refused(name, error) from error
        resources.add(lambda: api.module_unload(module))
        return module

    def _key(self, text: bytes) -> str:
        level = f"sm_{self._capability[0]}{self._capability[1]}"
        return f"cubin of {hashlib.sha256(text).hexdigest()} by CUDA {self._api.version()} for {level}"

    def _refused(self, what: str, error: CudaError) -> Exception:
        if faults.is_final(error):
            return error
        reason = str(error)
        level = f"{self._capability[0]}{self._capability[1]}"
        if error.code == _PTX_TOO_NEW:
            version = self._api.version()
            own = f"sm_{level}" + "a" * (self._capability >= (9, 0))
            reason = (
                f"its PTX is newer than this driver, for CUDA {version // 1000}.{version % 1000 // 10}, can compile; "
                f"update the driver, or compile for cuda{{arch={own}}}"
            )
        elif error.code == _NO_BINARY:
            reason = f"it has no code for this GPU, sm_{level} ({error.name})"
        return DeviceError(f"device {self._device}: load: {what}: {reason}")
