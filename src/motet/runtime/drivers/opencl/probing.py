"""Lists the platforms in another process before this one does, so that a platform that aborts does not end this one.

That it went well is kept in the cache, by the files of the platforms, and is not tried again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from motet.cache import Cache
from motet.errors import DeviceError, OptionError

_VENDORS, _FILES, INSIDE = "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "MOTET_OPENCL_PROBING"
_SYSTEM = "/etc/OpenCL/vendors"
_LONGEST = 120  # seconds
_LIST = "from motet.runtime.drivers.opencl.api import load_api; api = load_api(); " \
    "print([api.devices(platform) for platform in api.platforms()])"


def check_platforms(environment: Sequence[str]) -> None:
    """Raises DeviceError if a process that lists all platforms dies; `environment` are those of Python's own."""
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
    try:
        command = [sys.executable, "-c", _LIST]
        status = subprocess.run(
            command, capture_output=True, timeout=_LONGEST, check=False, env=inside()
        ).returncode
    except OSError:
        return
    except subprocess.TimeoutExpired:
        raise DeviceError(f"the OpenCL platforms do not answer within {_LONGEST} seconds: {', '.join(files)}") from None
    if status < 0:
        name = signal.Signals(-status).name
        raise DeviceError(
            f"an OpenCL platform ends its process when it is asked for its devices ({name}); expected one of these "
            f"removed or mended: {', '.join(filter(None, files))}"
        )
    if cache is not None:
        cache.put(key, b"listed")


def inside() -> dict[str, str]:
    """The environment of a process that may use the platforms without a check, with this process's modules."""
    return {**os.environ, INSIDE: "1", "PYTHONPATH": os.pathsep.join(sys.path)}


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
