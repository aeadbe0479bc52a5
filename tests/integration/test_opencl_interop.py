"""pyopencl's arrays, buffers, shared virtual memory and events in calls, and the example; each in a process of its own,
as pyopencl's loader reads its platforms once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.runtime.drivers.opencl.opening import opencl_device

_ROOT = Path(__file__).parents[2]
_PYOPENCL = """
import sys
import numpy as np
import motet
from motet import opencl
from motet.errors import CallError
from tests.unit.runtime.drivers.opencl.test_opencl_calls import TEXT, expected, inputs

uri, target = sys.argv[1:]
cl = opencl.import_pyopencl()
import pyopencl.array as arrays
session = motet.load(motet.compile(TEXT, devices=f"opencl{{cpu={target}}}"), devices=uri)
name = session.devices[0].info.name
device = next(d for p in cl.get_platforms() for d in p.get_devices() if name == f"{d.name.strip()} ({p.name.strip()})")
context = cl.Context([device])
queue = cl.CommandQueue(context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
x, w = inputs(21)

def same(results):
    for result, wanted in zip(results, expected(x, w)):
        np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-5)

# Arrays have a queue, and the events that compute them.
a, b = arrays.to_device(queue, x, async_=True), arrays.to_device(queue, w, async_=True)
results = session(a, b)
assert all(type(result) is arrays.Array and result.queue is queue for result in results)
queue.finish()
same([result.get() for result in results])

# Views begin somewhere in their memory, which the device must be able to address, and are contiguous.
whole = arrays.to_device(queue, np.concatenate([np.zeros((32, 16), np.float32), x]))
queue.finish()
same([result.get() for result in session.enqueue(whole[32:], b).wait()])
try:
    session(whole[::2], b)
    raise AssertionError
except CallError as error:
    assert "expected a contiguous array" in str(error)

# Buffers have no shape; the argument's must be static.
raw = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=w)
same([result.get() for result in session.enqueue(a, raw).wait()])
try:
    session(cl.Buffer(context, cl.mem_flags.READ_WRITE, 64), raw, stream=queue)
    raise AssertionError
except CallError as error:
    assert "has no shape" in str(error), error
try:
    session(a, cl.Buffer(context, cl.mem_flags.READ_WRITE, 60))
    raise AssertionError
except CallError as error:
    assert "60 bytes given; expected 64" in str(error), error
raw.release()
try:
    session(a, raw)
    raise AssertionError
except CallError as error:
    assert "\\n" not in str(error)

# Shared virtual memory, and an event that is pyopencl's on both sides.
shared = cl.SVMAllocation(context, w.nbytes, 64, cl.svm_mem_flags.READ_WRITE)
gate = cl.UserEvent(context)
cl.enqueue_copy(queue, shared, w).wait()
call = session.enqueue(a, shared, stream=queue, wait=[gate])
assert not call.event.done
gate.set_status(cl.command_execution_status.COMPLETE)
cl.wait_for_events([cl.Event.from_int_ptr(call.event.int_ptr)])
same([result.get() for result in call.result])
print("right")
"""


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=_ROOT, check=False, timeout=300
    )
    if "pyopencl cannot be imported" in done.stderr:
        pytest.skip("no pyopencl: make intel")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("uri, target", [("opencl:intel", "spirv64"), ("opencl:pocl", "opencl-c")])
def test_pyopencl_s_objects_are_arguments(uri: str, target: str) -> None:
    opencl_device("opencl:1")
    assert _run("-c", _PYOPENCL, uri, target).splitlines()[-1] == "right"


def test_the_example_copies_nothing() -> None:
    opencl_device("opencl:0")
    printed = _run("examples/opencl_interop.py")
    assert printed.count("right, largest error") == 2 and "WRONG" not in printed
    assert "100 calls: 0 allocations, 0 copies" in printed and "a call: 0 allocations, 0 copies" in printed
