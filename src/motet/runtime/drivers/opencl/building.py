"""Builds a program in another process, so that a platform whose compiler aborts does not end this one.

    python -m motet.runtime.drivers.opencl.building FOLDER

The folder has a request, and then the device's code or the error. Only programs that are not in the cache are built;
see `binaries.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

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
from motet.runtime.drivers.opencl.probing import inside

_REQUEST, _CODE, _BINARY, _ERROR = "request.json", "code", "binary", "error.json"
_SECONDS, _BYTES_PER_SECOND = 60, 4 << 10  # the time for a build grows with the program


def build_apart(
    number: int, about: str, code: bytes, options: str, seconds: float | None = None
) -> bytes | None:
    """The code of a device for a program: of device `number` of all platforms together, described by `about`. None if
    no process could be started, or found the same device. Raises OpenClError if the compiler rejects the program or
    leaves out its kernels, PlatformDied if it dies or has not ended after `seconds`."""
    limit = seconds or _SECONDS + len(code) / _BYTES_PER_SECOND
    with tempfile.TemporaryDirectory(prefix="motet-opencl-") as name:
        folder = Path(name)
        (folder / _CODE).write_bytes(code)
        (folder / _REQUEST).write_text(json.dumps({"number": number, "about": about, "options": options}))
        try:
            status = subprocess.run(
                [sys.executable, "-m", __name__, name], capture_output=True, timeout=limit, check=False,
                env={**inside(), **_private_caches(folder)},
            ).returncode
        except OSError:
            return None
        except subprocess.TimeoutExpired:
            raise PlatformDied(f"the platform's compiler had not ended after {limit:.0f} seconds") from None
        if (folder / _ERROR).exists():
            text, number = json.loads((folder / _ERROR).read_text())
            raise OpenClError(text, number)
        if status < 0:
            raise PlatformDied(f"the platform's compiler died ({signal.Signals(-status).name})")
        return (folder / _BINARY).read_bytes() if (folder / _BINARY).exists() else None


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
    devices = all_devices(api)
    number = request["number"]
    if number >= len(devices) or describe_device(api, devices[number]) != request["about"]:
        return
    try:
        context = api.context_create(devices[number])
        program = api.program_create(context, (folder / _CODE).read_bytes())
        api.build(program, devices[number], request["options"])
        if not api.kernel_names(program):
            raise OpenClError("the platform's compiler built a program without kernels")
        binary = api.program_binary(program)
    except OpenClError as error:
        (folder / _ERROR).write_text(json.dumps([str(error), error.code]))
        return
    aside = folder / f"{_BINARY}.writing"
    aside.write_bytes(binary)
    aside.replace(folder / _BINARY)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # threads of Intel's platform may die while the process ends
