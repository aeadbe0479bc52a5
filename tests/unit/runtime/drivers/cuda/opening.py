"""Devices over the driver for tests, and launches of the checks' kernels."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.runtime.drivers.cuda.fake import UUID, FakeApi

from motet.runtime.device import Buffer, DeviceInfo, Reference, Work
from motet.runtime.drivers.cuda.conformance_kernels import cuda_units
from motet.runtime.drivers.cuda.device import CudaDevice
from motet.runtime.drivers.cuda.driver import open_with
from motet.runtime.drivers.cuda.program import CudaExecutable
from motet.runtime.timeline import Point

KERNELS = cuda_units()["kernels"]


def open_fake(fake: FakeApi | None = None, options: str = "") -> CudaDevice:
    return open_with(fake or FakeApi(), DeviceInfo("a GPU", f"cuda:0{options}", family="cuda", uuid=UUID))


def load(device: CudaDevice) -> CudaExecutable:
    executable = device.load(list(KERNELS.values()), list(KERNELS))
    assert isinstance(executable, CudaExecutable)
    return executable


def launch_of(kernel: str, sizes_of_buffers: Sequence[int], tasks: int = 1, sizes: Sequence[int] = ()) -> Work:
    references = tuple(Reference(index, 0, size) for index, size in enumerate(sizes_of_buffers))
    return Work("launch", references, kernel, tasks, tuple(sizes))


def launch(device: CudaDevice, kernel: str, *buffers: Buffer, tasks: int = 1, sizes: Sequence[int] = ()) -> Point:
    work = launch_of(kernel, [buffer.bytes for buffer in buffers], tasks, sizes)
    return device.submit(device.record(load(device), [work], len(buffers), 0), buffers)
