"""Keeps what platforms make of programs: in the cache of the user, by the device, its driver and the options.

A program that is not there is built by another process (`building.py`), whose end is an error if the platform aborts. A
binary that its platform does not take any more, or that is damaged, is removed and made anew. That the platform failed
at a program is kept once it has built another one, which shows that not the platform as a whole is at fault.
"""

from __future__ import annotations

import hashlib
import json

from motet.cache import Cache
from motet.runtime.drivers.opencl.apart import time_limit
from motet.runtime.drivers.opencl.api import Handle, OpenClApi, OpenClError
from motet.runtime.drivers.opencl.building import all_devices, build_apart, describe_device, failure


class Binaries:
    """The programs of one device."""

    def __init__(self, api: OpenClApi, device: Handle) -> None:
        self._api = api
        self._device = device
        self._about = describe_device(api, device)
        self._faults: dict[str, bytes] = {}  # of programs, by the keys of the cache under which they will be kept

    def build(self, context: Handle, code: bytes, options: str) -> Handle:
        """A built program of SPIR-V or OpenCL C `code`. Raises OpenClError with the first error of its compiler,
        DeviceError."""
        cache = Cache()
        digest = hashlib.sha256(code).hexdigest()
        key = f"opencl binary\n{self._about}\n{options}\n{digest}"
        if (binary := cache.get(key)) is not None:
            try:
                return self._loaded(context, binary, options)
            except OpenClError:
                cache.remove(key)
        faulty = f"opencl fault\n{time_limit()}\n{key}"
        if (fault := cache.get(faulty)) is not None:
            raise failure(*json.loads(fault))
        try:
            binary = build_apart(all_devices(self._api).index(self._device), self._about, code, options)
        except OpenClError as error:
            self._faults[faulty] = json.dumps([str(error), error.code]).encode()
            raise
        program = self._loaded(context, binary, options)
        cache.put_all({key: binary, **self._faults})
        self._faults.clear()
        return program

    def load(self, context: Handle, binary: bytes) -> Handle:
        """A program of the device's own code. Raises OpenClError if the device does not take it."""
        return self._loaded(context, binary, "")

    def _loaded(self, context: Handle, binary: bytes, options: str) -> Handle:
        return self._built(self._api.program_load(context, self._device, binary), options)

    def _built(self, program: Handle, options: str) -> Handle:
        try:
            self._api.build(program, self._device, options)
        except OpenClError:
            self._api.release("Program", program)
            raise
        return program
