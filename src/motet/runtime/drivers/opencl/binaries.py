"""Keeps what platforms make of programs: in the cache of the user, by the device, its driver and the options.

A binary that its platform does not take any more, or that is damaged, is removed and made anew.
"""

from __future__ import annotations

import hashlib

from motet.cache import Cache
from motet.runtime.drivers.opencl.api import (
    DEVICE_DRIVER,
    DEVICE_NAME,
    DEVICE_PLATFORM,
    DEVICE_VERSION,
    PLATFORM_NAME,
    PLATFORM_VERSION,
    Handle,
    OpenClApi,
    OpenClError,
)


class Binaries:
    """The programs of one device."""

    def __init__(self, api: OpenClApi, device: Handle) -> None:
        self._api = api
        self._device = device
        platform = api.device_number(device, DEVICE_PLATFORM)
        texts = [api.platform_text(platform, what) for what in (PLATFORM_NAME, PLATFORM_VERSION)]
        texts += [api.device_text(device, what) for what in (DEVICE_NAME, DEVICE_VERSION, DEVICE_DRIVER)]
        self._about = "\n".join(texts)

    def build(self, context: Handle, code: bytes, options: str) -> Handle:
        """A built program of SPIR-V or OpenCL C `code`. Raises OpenClError with the first error of its compiler."""
        cache = Cache()
        digest = hashlib.sha256(code).hexdigest()
        key = f"opencl binary\n{self._about}\n{options}\n{digest}"
        if (binary := cache.get(key)) is not None:
            try:
                return self._built(self._api.program_load(context, self._device, binary), options)
            except OpenClError:
                cache.remove(key)
        program = self._built(self._api.program_create(context, code), options)
        if binary := self._api.program_binary(program):
            cache.put(key, binary)
        return program

    def _built(self, program: Handle, options: str) -> Handle:
        try:
            self._api.build(program, self._device, options)
        except OpenClError:
            self._api.release("Program", program)
            raise
        return program
