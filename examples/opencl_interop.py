"""Runs a compiled function on an application's own OpenCL context, queue, buffers and events.

    make intel
    python examples/opencl_interop.py

The application has an out-of-order queue. It uploads its inputs without waiting, passes the events of the uploads as
the call's wait list, and downloads the result after the call's event. The function reads and writes the application's
memory in place: `cl_mem` of pyopencl and, where the platform has it, unified shared memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import motet
from motet import opencl

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "opencl:0"


def main() -> None:
    cl = opencl.import_pyopencl()
    artifact = motet.compile(Path(__file__).parent / "fragment.mlir", devices={"gpu": "opencl,@cpu", "cpu": "host"})
    session = motet.load(artifact, devices={"gpu": DEVICE, "cpu": "host"})

    # The application's own objects.
    name = next(choice.info.name for choice in session.devices if choice.device.name == "gpu")
    device = next(
        device for platform in cl.get_platforms() for device in platform.get_devices()
        if name == f"{device.name.strip()} ({platform.name.strip()})"
    )
    context = cl.Context([device])
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    print(f"{DEVICE}: {name}")

    random = np.random.default_rng(0)
    lhs = random.standard_normal((64, 128), np.float32)
    weights = random.standard_normal((128, 128), np.float32)
    expected = lhs.astype(np.float64) @ weights + lhs

    # cl_mem: uploads, the call and the download are ordered by events alone.
    flags = cl.mem_flags.READ_WRITE
    a, b, c = (cl.Buffer(context, flags, array.nbytes) for array in (lhs, weights, lhs))
    uploads = [
        cl.enqueue_copy(queue, buffer, array, is_blocking=False) for buffer, array in ((a, lhs), (b, weights))
    ]
    call = session.enqueue(a, b, c, stream=queue, wait=uploads)
    result = np.empty_like(lhs)
    done = cl.Event.from_int_ptr(call.event.handle)
    cl.enqueue_copy(queue, result, c, wait_for=[done], is_blocking=False).wait()
    report("cl_mem", result, expected)

    # Later calls allocate and copy nothing.
    before = opencl.counts()
    for _ in range(100):
        call = session.enqueue(a, b, c, stream=queue, wait=[call.event])
    call.wait()
    after = opencl.counts()
    print(f"100 calls: {after.allocations - before.allocations} allocations, {after.copies - before.copies} copies")

    # Unified shared memory, of a kind that is stated for each argument.
    if "cl_intel_unified_shared_memory" not in device.extensions:
        print("unified shared memory: this platform has none")
        return
    kinds = ("usm_device", "usm_shared", "usm_host")
    shapes = (lhs.shape, weights.shape, lhs.shape)
    x, y, z = (opencl.empty(queue, kind, shape, "f32") for kind, shape in zip(kinds, shapes, strict=True))
    x.write(lhs, queue)
    y.write(weights, queue)
    before = opencl.counts()
    session.enqueue(x, y, z, stream=queue).wait()
    after = opencl.counts()
    print(f"a call: {after.allocations - before.allocations} allocations, {after.copies - before.copies} copies")
    report(", ".join(kinds), z.read(queue), expected)


def report(kind: str, result: np.ndarray, expected: np.ndarray) -> None:
    error = float(np.abs(result - expected).max())
    print(f"{kind}: {'right' if error < 1e-4 else 'WRONG'}, largest error {error:.1e}")
    if error >= 1e-4:
        sys.exit(1)


if __name__ == "__main__":
    main()
