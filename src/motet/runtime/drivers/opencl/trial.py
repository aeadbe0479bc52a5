"""Builds small programs for a device before others are: a platform may list a device, or prefer lengths of vectors,
that its compiler does not know, such as an old PoCL a new processor.

What came of it is kept in the cache, by the device, its platform, their versions, and the linker that PoCL needs: what
failed for want of one is tried again when it is there.
"""

from __future__ import annotations

import functools
import os
import shutil

from motet.cache import Cache
from motet.errors import DeviceError, OptionError
from motet.runtime.drivers.opencl.apart import INSIDE, time_limit
from motet.runtime.drivers.opencl.api import DEVICE_FLOATS, Handle, OpenClApi, OpenClError
from motet.runtime.drivers.opencl.building import all_devices, build_apart, describe_device

# The longest vectors of code, in floats, by the feature that its target requires.
LANES = {f"vectors-of-{32 * lanes}-bits": lanes for lanes in (16, 8, 4)}
_FOR_ALL = 8  # longer vectors are for devices that prefer them
# LLVM expands these functions of vectors in a way of their own.
_TRIAL = (
    "__kernel void trial(__global float{n} *x) "
    "{{ x[0] = sqrt(x[0]) + rsqrt(x[1]) + floor(x[2]) + ceil(x[3]) + convert_float{n}(convert_int{n}(x[4])); }}"
)


def compiler_fault(api: OpenClApi, device: Handle) -> str:
    """Why the compiler of a device builds no program at all, not even without vectors; empty if it builds one."""
    if INSIDE in os.environ:
        return ""
    fault = _try(api, device, 1)
    return f"its compiler builds no program: {fault}" if fault else ""


def prefers_shorter(api: OpenClApi, device: Handle, lanes: int) -> bool:
    """Whether vectors of `lanes` floats are too long for a device by what its platform says."""
    return lanes > max(_FOR_ALL, api.device_number(device, DEVICE_FLOATS))


def vector_fault(api: OpenClApi, device: Handle, lanes: int) -> str:
    """Why the compiler of a device builds no code with vectors of `lanes` floats; empty if it does."""
    fault = _try(api, device, lanes)
    return f"its compiler does not build vectors of {lanes} floats: {fault}" if fault else ""


def _try(api: OpenClApi, device: Handle, lanes: int) -> str:
    program = _TRIAL.format(n=lanes if lanes > 1 else "")
    return try_program(all_devices(api).index(device), describe_device(api, device), program)


@functools.cache
def try_program(number: int, about: str, program: str) -> str:
    """What is wrong with the platform's build of `program`; empty if nothing is. `number` and `about` are the device's,
    as in `build_apart`."""
    try:
        cache = Cache()
    except OptionError:
        cache = None
    key = f"opencl trial\n{about}\n{time_limit()}\n{shutil.which('ld')}\n{program}"
    known = cache.get(key) if cache is not None else None
    if known is not None:
        return known.decode()
    try:
        build_apart(number, about, program.encode(), "")
        fault = ""
    except OpenClError as error:
        fault = str(error)
    except DeviceError as error:
        return str(error)  # not the platform's doing
    if cache is not None:
        cache.put(key, fault.encode())
    return fault
