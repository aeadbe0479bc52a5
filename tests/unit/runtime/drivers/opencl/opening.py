"""The OpenCL devices of this machine, for tests."""

from __future__ import annotations

import pytest

from motet.runtime.device import DeviceInfo, find_device, probe
from motet.runtime.drivers.opencl.api import DEVICE_IL, load_api
from motet.runtime.drivers.opencl.driver import device_handle


def opencl_devices() -> list[str]:
    """The URIs of all OpenCL devices that are available."""
    return [info.uri for info in probe("opencl") if info.available]


def opencl_device(uri: str = "opencl:0") -> DeviceInfo:
    """An OpenCL device; skips the test if there is none."""
    if uri not in opencl_devices():
        pytest.skip(f"no {uri}: make intel")
    return find_device(uri)


def spirv_device(uri: str = "opencl:0") -> DeviceInfo:
    """An OpenCL device that takes SPIR-V; skips the test if there is none, or its platform takes none."""
    info = opencl_device(uri)
    if not takes_spirv(info):
        pytest.skip(f"needs SPIR-V, which {info.name} does not take: make intel")
    return info


def source_device() -> str:
    """The URI of a device that takes no SPIR-V, so that its programs are in OpenCL C; skips the test if there is
    none."""
    for uri in opencl_devices():
        if not takes_spirv(find_device(uri)):
            return uri
    pytest.skip("no OpenCL device without SPIR-V: make intel")


def takes_spirv(info: DeviceInfo) -> bool:
    return "SPIR-V" in load_api().device_text(device_handle(info), DEVICE_IL)
