"""Imports pyopencl, which `make intel` installs next to this environment, so that it finds the same platforms."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from motet.errors import DeviceError
from motet.runtime.drivers.opencl.loader import load_library

_VENDORS = "OCL_ICD_VENDORS"


def import_pyopencl() -> Any:
    """The module pyopencl. Its loader reads one folder of platforms: OCL_ICD_VENDORS, which is set, unless it is, to
    that of this environment, if there is one. Raises DeviceError if it is not installed."""
    prefix = Path(sys.prefix)
    load_library()  # the libraries that the platforms need
    own = prefix / "etc/OpenCL/vendors"
    if own.is_dir():
        os.environ.setdefault(_VENDORS, str(own))
    try:
        return importlib.import_module("pyopencl")
    except ImportError:
        pass
    packages = [str(folder) for folder in sorted(prefix.glob("intel/lib/python*/site-packages"))]
    sys.path += packages
    try:
        return importlib.import_module("pyopencl")
    except ImportError as error:
        raise DeviceError(f"pyopencl cannot be imported: {error}; run: make intel (or pip install pyopencl)") from error
    finally:
        sys.path = [folder for folder in sys.path if folder not in packages]
