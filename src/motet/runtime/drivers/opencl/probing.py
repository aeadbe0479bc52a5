"""Lists the platforms in another process before this one does, so that a platform that aborts does not end this one.

That it went well is kept in the cache, by the files of the platforms, and is not tried again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from motet.cache import Cache
from motet.errors import DeviceError, OptionError
from motet.runtime.drivers.opencl.apart import ANSWERED, INSIDE, run_apart, time_limit

_VENDORS, _FILES = "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"
_SYSTEM = "/etc/OpenCL/vendors"
_LIST = f"""
import contextlib, os
from motet.errors import DeviceError
from motet.runtime.drivers.opencl.api import load_api
with contextlib.suppress(DeviceError):  # this process will meet it, too
    [load_api().devices(platform) for platform in load_api().platforms()]
os._exit({ANSWERED})
"""


def check_platforms(environment: Sequence[str]) -> None:
    """Raises DeviceError if a process that lists all platforms dies or does not end; `environment` are those of
    Python's own."""
    if INSIDE in os.environ:
        return
    files = _files(environment)
    key = "opencl platforms\n" + "\n".join(map(_version, files))
    try:
        cache = Cache()
    except OptionError:
        cache = None
    if cache is not None and cache.get(key) is not None:
        return
    if fault := run_apart(["-c", _LIST], time_limit()):
        raise DeviceError(
            f"an OpenCL platform, asked for its devices, {fault}; expected one of these removed or mended: "
            f"{', '.join(filter(None, files))}"
        )
    if cache is not None:
        cache.put(key, b"listed")


def _files(environment: Sequence[str]) -> list[str]:
    """The files that name platforms, and the platforms that are named without one."""
    vendors = Path(os.environ.get(_VENDORS) or _SYSTEM)
    found = [str(file) for file in (sorted(vendors.glob("*.icd")) if vendors.is_dir() else [vendors])]
    return [*found, *environment, *os.environ.get(_FILES, "").split(os.pathsep)]


def _version(file: str) -> str:
    """A file with its content or time, so that another platform is another entry of the cache."""
    path = Path(file)
    try:
        content = path.read_text().strip() if path.suffix == ".icd" else ""
        return f"{file} {content} {_time(path)} {_time(Path(content))}"
    except OSError:
        return file


def _time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
