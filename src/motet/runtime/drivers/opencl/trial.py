"""Builds a small program for a device before anything else is: a platform may list a device that its compiler does not
know, such as an old PoCL a new processor.

What came of it is kept in the cache, by the device, its platform and their versions.
"""

from __future__ import annotations

import functools
import os

from motet.cache import Cache
from motet.errors import OptionError
from motet.runtime.drivers.opencl.api import Handle, OpenClApi, OpenClError
from motet.runtime.drivers.opencl.building import all_devices, build_apart, describe_device
from motet.runtime.drivers.opencl.probing import INSIDE

_PROGRAM = b"__kernel void trial(__global int *x) { x[get_global_id(0)] = 1; }"


def compiler_fault(api: OpenClApi, device: Handle) -> str:
    """Why the compiler of a device builds no program at all; empty if it builds one."""
    if INSIDE in os.environ:
        return ""
    return try_device(all_devices(api).index(device), describe_device(api, device))


@functools.cache
def try_device(number: int, about: str) -> str:
    try:
        cache = Cache()
    except OptionError:
        cache = None
    key = f"opencl trial\n{about}\n{_PROGRAM.decode()}"
    known = cache.get(key) if cache is not None else None
    if known is not None:
        return known.decode()
    try:
        build_apart(number, about, _PROGRAM, "")
        fault = ""
    except OpenClError as error:
        fault = f"its compiler builds no program: {error}"
    if cache is not None:
        cache.put(key, fault.encode())
    return fault
