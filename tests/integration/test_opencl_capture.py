"""Intel's GPU driver in capture mode, which needs no GPU and runs no kernel: memory of all kinds, and calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ICD = Path("/etc/OpenCL/vendors/intel.icd")
_CALLS = """
import numpy as np
import warnings
import motet
from motet import opencl
from motet.errors import CallError
from motet.runtime.device import find_device
from motet.runtime.drivers.opencl.api import load_api
from motet.runtime.drivers.opencl.driver import device_handle
from tests.unit.runtime.drivers.opencl.test_opencl_calls import STATED

info = find_device("opencl:graphics")
api, device = load_api(), device_handle(info)
context = api.context_create(device)
queue = api.queue_create(context, device)
text = STATED.replace("motet.memory", "motet.name").replace("#gpu.address_space<global>", '"y"')
session = motet.load(motet.compile(text, devices="opencl{cpu=opencl-c}"), devices=info.uri)
for kind in ("cl_mem", "usm_device", "usm_shared", "usm_host", "svm"):
    a, b, out = (opencl.empty(queue, kind, (8,), "f32") for _ in range(3))
    with warnings.catch_warnings(record=True) as noted:
        call = session.enqueue(a, b, out=out, stream=queue)
        session.enqueue(a, b, out=out, stream=queue, wait=[call.event]).wait()
    assert call.event.done
    assert len(noted) == (kind == "usm_host"), [str(each.message) for each in noted]  # this GPU has memory of its own
    if kind in ("usm_device", "usm_shared", "usm_host"):
        other = "usm_device" if kind == "usm_host" else "usm_host"
        try:
            session.enqueue(opencl.Buffer(a.handle, other, (8,), "f32"), b, out=out, stream=queue)
            raise AssertionError(kind)
        except CallError as error:
            assert f"{other} stated" in str(error) and f"is {kind} memory" in str(error)
print("done")
"""


def test_calls_with_each_kind_of_memory_are_taken(tmp_path: Path) -> None:
    if not _ICD.exists():
        pytest.skip("no intel-opencl-icd, which packages.txt names")
    (tmp_path / "intel.icd").write_text(_ICD.read_text())
    mode = {"NEOReadDebugKeys": "1", "SetCommandStreamReceiver": "1", "ProductFamilyOverride": "dg1"}
    done = subprocess.run(
        [sys.executable, "-c", _CALLS], capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path,
        env={
            **os.environ, **mode, "OCL_ICD_VENDORS": str(tmp_path), "MOTET_CACHE_DIR": str(tmp_path / "cache"),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),
        },
    )
    if "opencl:graphics: it is not present" in done.stderr:
        pytest.skip("this intel-opencl-icd has no capture mode")
    assert done.returncode == 0 and done.stdout.strip().endswith("done"), done.stdout + done.stderr
