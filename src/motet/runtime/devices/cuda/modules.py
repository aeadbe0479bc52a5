"""Code brought onto a GPU: machine code as it is, PTX compiled by the driver, once for each driver and kind of GPU.

What the driver makes of PTX is kept in Motet's cache (`motet/cache.py`), so that another process, or the next, loads
machine code. What takes the driver long is done by several threads.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from motet.cache import Cache
from motet.errors import DeviceError
from motet.runtime.devices.cuda import faults
from motet.runtime.devices.cuda.api import CudaApi, CudaError, Handle
from motet.runtime.devices.cuda.lifetime import Current, Resources

_ELF = b"\x7fELF"
_MOST_THREADS = 8
_FEW = 2  # images that are not worth threads


class Modules:
    """Loads for one GPU, of compute capability `capability`, whose errors name `device`."""

    def __init__(self, device: str, api: CudaApi, current: Current, capability: tuple[int, int]) -> None:
        self._device = device
        self._api = api
        self._current = current
        self._capability = capability

    def load(self, images: Mapping[bytes, str], resources: Resources) -> dict[bytes, Handle]:
        """The modules of `images`, by image, which are `resources`; the values are names for errors. Raises
        DeviceError, CudaError for a GPU that is lost."""
        cache = Cache() if any(not image.startswith(_ELF) for image in images) else None
        threads = min(_MOST_THREADS, os.cpu_count() or 1, len(images)) if len(images) > _FEW else 1
        if threads == 1:
            return {image: self._load(name, image, resources, cache) for image, name in images.items()}

        def load(item: tuple[bytes, str]) -> tuple[bytes, Handle]:
            with self._current:
                return item[0], self._load(item[1], item[0], resources, cache)

        with ThreadPoolExecutor(threads, "motet cuda code") as pool:
            return dict(pool.map(load, images.items()))

    def function(self, name: str, module: Handle, entry: str, shared: int) -> Handle:
        """A kernel of a module, allowed `shared` bytes of shared memory. Raises as `load` does."""
        try:
            function = self._api.module_function(module, entry)
            if shared:
                self._api.allow_shared(function, shared)
        except CudaError as error:
            raise self._refused(f"{name}: {entry}", error) from error
        return function

    def _load(self, name: str, image: bytes, resources: Resources, cache: Cache | None) -> Handle:
        api = self._api
        try:
            if cache is None or image.startswith(_ELF):
                module = api.module_load(image)
            else:
                module = self._load_text(image, cache)
        except CudaError as error:
            raise self._refused(name, error) from error
        resources.add(lambda: api.module_unload(module))
        return module

    def _load_text(self, text: bytes, cache: Cache) -> Handle:
        digest = hashlib.sha256(text).hexdigest()
        key = f"cubin of {digest} by CUDA {self._api.version()} for sm_{self._capability[0]}{self._capability[1]}"
        kept = cache.get(key)
        try:
            if kept is None:
                kept = self._api.compile_ptx(text)
                cache.put(key, kept)
            return self._api.module_load(kept)
        except CudaError as error:
            if faults.is_final(error):
                raise
            return self._api.module_load(text)  # which says what is wrong with it, if that was it

    def _refused(self, what: str, error: CudaError) -> Exception:
        if faults.is_final(error):
            return error
        return DeviceError(f"device {self._device}: load: {what}: {error}")
