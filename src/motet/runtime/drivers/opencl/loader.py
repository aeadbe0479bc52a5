"""Finds the OpenCL loader, and the platforms that are installed in Python's own environment.

The loader, `libOpenCL.so.1`, is the one in the `lib` folder of the Python environment, if there is one, else the
system's. It lists the platforms of the system (`/etc/OpenCL/vendors`, or OCL_ICD_VENDORS). Those of the environment,
`etc/OpenCL/vendors/*.icd` as in conda, are added to OCL_ICD_FILENAMES, which the Khronos loader reads. They are opened
before the loader: pip installs them with the libraries that they need, and Intel's loader needs these, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Generator
from pathlib import Path

from motet.errors import DeviceError
from motet.runtime.drivers.opencl.probing import check_platforms

INSTALL = "install an OpenCL loader and a platform, such as the packages ocl-icd-libopencl1 and pocl-opencl-icd, or " \
    "run: make intel"
_LOADER = "libOpenCL.so.1"
_ADDED = "OCL_ICD_FILENAMES"
_MOST_NEEDED = 16  # libraries in the folder of one


@functools.cache
def load_library() -> ctypes.CDLL:
    """The OpenCL loader, which has listed its platforms. Raises DeviceError if there is none, or a platform aborts."""
    named = environment_platforms(Path(sys.prefix))
    check_platforms(named)
    own = openable(named)
    bundled = Path(sys.prefix) / "lib" / _LOADER
    try:
        library = open_beside(bundled.resolve()) if bundled.exists() else ctypes.CDLL(_LOADER)
    except OSError as error:
        raise DeviceError(f"no OpenCL loader: {error}; {INSTALL}") from error
    with _added(own):
        library.clGetPlatformIDs(ctypes.c_uint(0), None, ctypes.byref(ctypes.c_uint()))  # reads the list once
    return library


def environment_platforms(prefix: Path) -> list[str]:
    """The libraries of the platforms below `prefix`."""
    found: list[str] = []
    for file in sorted((prefix / "etc/OpenCL/vendors").glob("*.icd")):
        with contextlib.suppress(OSError):
            found += file.read_text().split()[:1]
    return found


def openable(platforms: list[str]) -> list[str]:
    """Those of `platforms` that can be opened, which the process then keeps open."""
    found: list[str] = []
    for path in platforms:
        with contextlib.suppress(OSError):
            ctypes.CDLL(path)
            found.append(path)
    return found


def open_beside(path: Path) -> ctypes.CDLL:
    """The library `path`, after those that it needs and that are in its folder, which the linker does not search.
    Raises OSError."""
    for _ in range(_MOST_NEEDED):
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            needed = path.with_name(str(error).partition(":")[0])
            if needed == path or not needed.is_file():
                raise
            open_beside(needed)
    return ctypes.CDLL(str(path))


@contextlib.contextmanager
def _added(platforms: list[str]) -> Generator[None]:
    """Name `platforms` to the loader for the duration of the block, after those that the user has named."""
    before = os.environ.get(_ADDED)
    os.environ[_ADDED] = os.pathsep.join([*([before] if before else []), *platforms])
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ADDED]
        else:
            os.environ[_ADDED] = before
