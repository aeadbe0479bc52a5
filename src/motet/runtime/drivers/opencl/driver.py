"""The driver for OpenCL platforms.

    opencl:0                    the first device of all platforms
    opencl:0?queues=2           with two queues
    opencl:0?svm=0              without shared virtual memory, as if the device had none
    opencl:intel, opencl:pocl   the first device of a platform, by the suffix of its functions
    opencl:0000:03:00.0         a device by its place on the PCI bus
    opencl:Xeon                 the first device with this in its name, or in that of its platform
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

from motet.artifact.uri import number_options
from motet.errors import DeviceError
from motet.runtime.device import DeviceInfo
from motet.runtime.drivers.opencl.api import (
    DEVICE_AVAILABLE,
    DEVICE_COMPUTE_UNITS,
    DEVICE_MEMORY,
    DEVICE_NAME,
    DEVICE_PCI_BUS,
    DEVICE_VERSION,
    PLATFORM_NAME,
    PLATFORM_SUFFIX,
    Handle,
    OpenClApi,
    load_api,
)
from motet.runtime.drivers.opencl.device import FAMILY, SOURCE, OpenClDevice
from motet.runtime.drivers.opencl.handles import DLPACK_OPENCL
from motet.runtime.drivers.opencl.loader import INSTALL
from motet.runtime.drivers.opencl.trial import compiler_fault
from motet.runtime.foreign import StreamCalls

api = 1
dlpack_types = (DLPACK_OPENCL,)

_OPTIONS = {"queues": (2, 1), "svm": (1, 0)}
_UNSTOPPABLE = "kernels may run in this process, and nothing can stop them but its end"
conformance_exempt = {
    "fault-illegal-instruction": _UNSTOPPABLE,
    "fault-out-of-bounds": _UNSTOPPABLE,
    "fault-reaches-dependants": _UNSTOPPABLE,
    "fault-then-usable": _UNSTOPPABLE,
    "abort-endless": _UNSTOPPABLE,
    "load-objects-together": "each object is a program by itself: nothing is linked on the device",
}


def probe() -> Sequence[DeviceInfo]:
    """All devices of all platforms; last those that cannot be used."""
    try:
        opencl = load_api()
        found = _list(opencl)
    except DeviceError as error:
        return [_missing(str(error))]
    if not found:
        return [_missing(f"no OpenCL platform has a device; {INSTALL}")]
    infos = sorted((_describe(opencl, *each) for each in found), key=lambda info: not info.available)
    return [replace(info, uri=f"{FAMILY}:{place}", ordinal=place) for place, info in enumerate(infos)]


def open(info: DeviceInfo) -> OpenClDevice:
    """Raises DeviceError for unknown options, and if the device cannot be opened."""
    options = number_options(info.uri, _OPTIONS)
    return OpenClDevice(info, load_api(), device_handle(info), int(options["queues"]), bool(options["svm"]))


def device_handle(info: DeviceInfo) -> Handle:
    """OpenCL's handle of a device. Raises DeviceError if it is not present any more."""
    opencl = load_api()
    usable = [device for _, device in _list(opencl) if not _obstacle(opencl, device)]
    if info.ordinal >= len(usable):
        raise DeviceError(f"device {info.uri}: it is not present any more; there are {len(usable)}")
    return usable[info.ordinal]


def stream_calls() -> StreamCalls:
    """Calls on a caller's queue, with memory of the caller's context."""
    from motet.runtime.drivers.opencl import calls  # needed by such calls only

    return calls


def conformance_kernels() -> tuple[str, Mapping[str, Mapping[str, bytes]]]:
    """The target of the conformance kernels, and the files of each unit."""
    from motet.runtime.drivers.opencl.conformance_kernels import opencl_units

    return SOURCE, opencl_units()


def _list(opencl: OpenClApi) -> list[tuple[Handle, Handle]]:
    """All platforms with their devices."""
    return [(platform, device) for platform in opencl.platforms() for device in opencl.devices(platform)]


def _describe(opencl: OpenClApi, platform: Handle, device: Handle) -> DeviceInfo:
    units = opencl.device_number(device, DEVICE_COMPUTE_UNITS)
    name = f"{opencl.device_text(device, DEVICE_NAME)} ({opencl.platform_text(platform, PLATFORM_NAME)})"
    reason = _obstacle(opencl, device)
    return DeviceInfo(
        name, FAMILY, cores=min(units, os.cpu_count() or units), threads=units,
        level=opencl.device_text(device, DEVICE_VERSION), memory=opencl.device_number(device, DEVICE_MEMORY),
        aliases=_aliases(opencl, platform, device), available=not reason,
        reason=f"{name}: {reason}" if reason else "", family=FAMILY,
    )


def _aliases(opencl: OpenClApi, platform: Handle, device: Handle) -> tuple[str, ...]:
    """The suffix of the platform, which is short, and the device's place on the PCI bus, if it has one."""
    suffix = opencl.platform_text(platform, PLATFORM_SUFFIX).lower()
    bus = opencl.device_bytes(device, DEVICE_PCI_BUS)
    place = "{:04x}:{:02x}:{:02x}.{:x}".format(*struct.unpack("=4I", bus)) if len(bus) == 16 else ""
    return tuple(alias for alias in (suffix, place) if alias)


def _obstacle(opencl: OpenClApi, device: Handle) -> str:
    """Why a device cannot be used; empty if it can."""
    if not opencl.device_number(device, DEVICE_AVAILABLE):
        return "its platform says that it is not available"
    return compiler_fault(opencl, device)


def _missing(reason: str) -> DeviceInfo:
    return DeviceInfo("OpenCL device", f"{FAMILY}:0", available=False, reason=reason, family=FAMILY)
