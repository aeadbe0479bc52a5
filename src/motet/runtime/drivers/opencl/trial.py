"""Builds small programs for a device before others are: a platform may list a device, or lengths of vectors, that its
compiler does not know, such as an old PoCL a new processor.

What came of it is kept in the cache, by the device, its platform and their versions.
"""

from __future__ import annotations

import functools
import os

from motet.cache import Cache
from motet.errors import OptionError
from motet.runtime.drivers.opencl.api import DEVICE_FLOATS, Handle, OpenClApi, OpenClError
from motet.runtime.drivers.opencl.building import all_devices, build_apart, describe_device
from motet.runtime.drivers.opencl.probing import INSIDE

WIDE_LANES = 16
_SECONDS = 60  # for the build of such a program
_SMALL = "__kernel void trial(__global int *x) { x[get_global_id(0)] = 1; }"
# LLVM expands these functions of vectors in a way of their own.
_WIDE = (
    "__kernel void trial(__global float16 *x) "
    "{ x[0] = sqrt(x[0]) + rsqrt(x[1]) + floor(x[2]) + ceil(x[3]) + convert_float16(convert_int16(x[4])); }"
)


def compiler_fault(api: OpenClApi, device: Handle) -> str:
    """Why the compiler of a device builds no program at all; empty if it builds one."""
    if INSIDE in os.environ:
        return ""
    fault = _try(api, device, _SMALL)
    return f"its compiler builds no program: {fault}" if fault else ""


def wide_fault(api: OpenClApi, device: Handle) -> str:
    """Why code with vectors of 16 floats is not for a device; empty if it is: the device prefers such vectors, and its
    compiler survives them."""
    if api.device_number(device, DEVICE_FLOATS) < WIDE_LANES:
        return "it prefers shorter vectors"
    return _try(api, device, _WIDE)


def _try(api: OpenClApi, device: Handle, program: str) -> str:
    return try_program(all_devices(api).index(device), describe_device(api, device), program)


@functools.cache
def try_program(number: int, about: str, program: str) -> str:
    """What is wrong with the platform's build of `program`; empty if nothing is. `number` and `about` are the device's,
    as in `build_apart`."""
    try:
        cache = Cache()
    except OptionError:
        cache = None
    key = f"opencl trial\n{about}\n{program}"
    known = cache.get(key) if cache is not None else None
    if known is not None:
        return known.decode()
    try:
        build_apart(number, about, program.encode(), "", _SECONDS)
        fault = ""
    except OpenClError as error:
        fault = str(error)
    if cache is not None:
        cache.put(key, fault.encode())
    return fault
