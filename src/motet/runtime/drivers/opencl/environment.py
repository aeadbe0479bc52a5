"""Makes OpenCL platforms that pip has installed visible to the driver. `make intel` runs this file, with any Python.

    python environment.py PACKAGES PREFIX

PACKAGES is the environment with the platforms, PREFIX the one whose Python runs Motet: it gets `lib/libOpenCL.so.1` and
a file in `etc/OpenCL/vendors` for each platform, in which the library's path is absolute. The file of pip's Intel
platform has a path that pip does not fill in, and pip's PoCL has a relative one.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PLATFORMS = {"intel": "lib/libintelocl.so", "pocl": "lib/python*/site-packages/pyopencl/.libs/libpocl-*.so"}
_LOADER = "lib/libOpenCL.so.1"


def register(packages: Path, prefix: Path) -> list[str]:
    """Write the files; returns the names of the platforms found."""
    vendors = prefix / "etc/OpenCL/vendors"
    vendors.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    for name, pattern in _PLATFORMS.items():
        for library in sorted(packages.glob(pattern))[:1]:
            (vendors / f"{name}.icd").write_text(f"{library.resolve()}\n")
            found.append(name)
    loader, target = prefix / _LOADER, packages / _LOADER
    if target.exists():
        loader.unlink(missing_ok=True)
        loader.symlink_to(target.resolve())
    return found


if __name__ == "__main__":
    made = register(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
    sys.exit(0 if made else "error: no OpenCL platform in " + sys.argv[1])
