"""Scripts with Intel's GPU driver in capture mode, which needs no GPU and runs no kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ICD = Path("/etc/OpenCL/vendors/intel.icd")
# Said by a script that found no device.
_MISSING = ("it is not present", "no OpenCL platform has a device", "not enough values to unpack")


def run_captured(script: str, folder: Path, *arguments: str, product: str = "dg1") -> str:
    """What `script` prints when the driver shows a GPU of family `product`. Skips without the driver, or without the
    mode; fails if the script does."""
    if not _ICD.exists():
        pytest.skip("no intel-opencl-icd, which packages.txt names")
    (folder / "intel.icd").write_text(_ICD.read_text())
    mode = {"NEOReadDebugKeys": "1", "SetCommandStreamReceiver": "1", "ProductFamilyOverride": product}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False, timeout=300,
        cwd=folder,
        env={
            **os.environ, **mode, "OCL_ICD_VENDORS": str(folder), "MOTET_CACHE_DIR": str(folder / "cache"),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
        },
    )
    if done.returncode and any(each in done.stderr for each in _MISSING):
        pytest.skip("this intel-opencl-icd has no capture mode")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
