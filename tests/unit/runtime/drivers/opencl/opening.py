"""The OpenCL devices of this machine, for tests."""

from __future__ import annotations

import pytest

from motet.runtime.device import DeviceInfo, find_device, probe


def opencl_devices() -> list[str]:
    """The URIs of all OpenCL devices that are available."""
    return [info.uri for info in probe("opencl") if info.available]


def opencl_device(uri: str = "opencl:0") -> DeviceInfo:
    """An OpenCL device; skips the test if there is none."""
    if uri not in opencl_devices():
        pytest.skip(f"no {uri}: make intel")
    return find_device(uri)


def source_device() -> str:
    """The URI of a device that takes no SPIR-V, so that its programs are in OpenCL C; skips the test if there is
    none."""
    for uri in opencl_devices():
        if find_device(uri).name.endswith("(Portable Computing Language)"):
            return uri
    pytest.skip("no OpenCL device without SPIR-V: make intel")
