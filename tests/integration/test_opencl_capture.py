"""Intel's GPU driver in capture mode, which needs no GPU and runs no kernel: memory of all kinds, and calls."""

from __future__ import annotations

from pathlib import Path

from tests.integration.capture_mode import run_captured

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
    assert run_captured(_CALLS, tmp_path).endswith("done\n")
