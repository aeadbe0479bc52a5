"""Builds a program in another process, so that a platform whose compiler aborts does not end this one.

    python -m motet.runtime.drivers.opencl.building FOLDER

The folder has a request, and then the device's code or the error. Only programs that are not in the cache are built;
see `binaries.py`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from motet.errors import DeviceError
from motet.runtime.drivers.opencl.apart import ANSWERED, run_apart, time_limit
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
    PlatformDied,
    load_api,
)

_REQUEST, _CODE, _BINARY, _ERROR = "request.json", "code", "binary", "error.json"
_BYTES_PER_SECOND = 4 << 10  # by which the time for a build grows with the program


def build_apart(number: int, about: str, code: bytes, options: str) -> bytes:
    """The code of a device for a program: of device `number` of all platforms together, described by `about`. Raises
    OpenClError if the compiler rejects the program, PlatformDied if it dies, does not end in time, or builds no
    kernels, and DeviceError if no process can ask it."""
    with tempfile.TemporaryDirectory(prefix="motet-opencl-") as name:
        folder = Path(name)
        (folder / _CODE).write_bytes(code)
        (folder / _REQUEST).write_text(json.dumps({"number": number, "about": about, "options": options}))
        fault = run_apart(["-m", __name__, name], time_limit() + len(code) / _BYTES_PER_SECOND, _private_caches(folder))
        if (folder / _ERROR).exists():
            raise failure(*json.loads((folder / _ERROR).read_text()))
        if fault:
            raise PlatformDied(f"the platform's compiler {fault}")
        if not (folder / _BINARY).exists():
            raise DeviceError("another process does not find the same OpenCL devices")
        return (folder / _BINARY).read_bytes()


def failure(text: str, code: int) -> OpenClError:
    """The error of a build: one without an OpenCL error code means that the platform built no kernels."""
    return OpenClError(text, code) if code else PlatformDied(text)


def _private_caches(folder: Path) -> dict[str, str]:
    """The folders of platforms' own caches, for one build: what a compiler that dies leaves there, PoCL takes for a
    program without kernels in the next build."""
    return {"POCL_CACHE_DIR": str(folder / "pocl")}


def describe_device(api: OpenClApi, device: Handle) -> str:
    """The device, its platform and their versions."""
    platform = api.device_number(device, DEVICE_PLATFORM)
    texts = [api.platform_text(platform, what) for what in (PLATFORM_NAME, PLATFORM_VERSION)]
    texts += [api.device_text(device, what) for what in (DEVICE_NAME, DEVICE_VERSION, DEVICE_DRIVER)]
    return "\n".join(texts)


def all_devices(api: OpenClApi) -> list[Handle]:
    return [device for platform in api.platforms() for device in api.devices(platform)]


def main(folder: Path) -> None:
    request = json.loads((folder / _REQUEST).read_text())
    api = load_api()
    devices, about = all_devices(api), request["about"]
    alike = {place: each for place, each in enumerate(devices) if describe_device(api, each) == about}
    if not alike:
        return
    # The other process may lack a platform, such as Intel's where OpenVINO has loaded an older library that it needs.
    device = alike.get(request["number"]) or next(iter(alike.values()))
    try:
        context = api.context_create(device)
        program = api.program_create(context, (folder / _CODE).read_bytes())
        api.build(program, device, request["options"])
        binary = api.program_binary(program)
        if not binary or not api.kernel_names(program):
            raise PlatformDied("the platform's compiler built a program without kernels")
    except OpenClError as error:
        (folder / _ERROR).write_text(json.dumps([str(error), error.code]))
        return
    aside = folder / f"{_BINARY}.writing"
    aside.write_bytes(binary)
    aside.replace(folder / _BINARY)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(ANSWERED)  # threads of Intel's platform may die while the process ends
