"""Memory, transfers, faults and tensors of other libraries, over the driver for tests."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.fake import FakeApi, Fault
from tests.unit.runtime.drivers.cuda.opening import launch, launch_of, load, open_fake

from motet.errors import CallError, DeviceError, DeviceLost, KernelFault, OutOfMemoryError
from motet.runtime.device import Reference, Work
from motet.runtime.device_array import DeviceArray
from motet.runtime.drivers.common.block_pool import rounded
from motet.runtime.drivers.cuda.device import CudaDevice
from motet.runtime.timeline import HostTimeline

MEBIBYTE = 1 << 20

# -- memory ------------------------------------------------------------------------------------------


def test_blocks_waste_little_and_are_aligned():
    for size in [*range(0, 5000, 7), *(int(1.37**power) for power in range(90))]:
        block = rounded(size)
        assert block >= size and block % 512 == 0
        assert block - size <= max(512, size // 4 + 1, (2 * MEBIBYTE - 1) * (size >= 2 * MEBIBYTE))


def test_memory_that_was_used_before_is_used_again_without_asking():
    fake = FakeApi()
    device = open_fake(fake)
    address = device.allocate(1000).address
    for size in (1000, 1001, 1024, 513):
        assert device.allocate(size).address == address
    assert fake.calls["pool_allocate"] == 1
    first, second = device.allocate(1000), device.allocate(1000)
    assert first.address != second.address and device.bytes_used == 2048
    del first, second
    gc.collect()
    device.allocate(1)
    assert device.bytes_used <= 512
    device.close()


def test_what_is_unused_goes_back_before_memory_runs_out():
    device = open_fake(FakeApi(memory=64 * MEBIBYTE))
    for megabytes in (14, 30, 50, 10, 60, 2):  # no two of the same size: each has to make room for the next
        buffer = device.allocate(megabytes * MEBIBYTE)
        device.fill(buffer, 1).wait()
        del buffer
    kept = device.allocate(40 * MEBIBYTE)
    with pytest.raises(OutOfMemoryError) as raised:
        device.allocate(30 * MEBIBYTE)
    assert (raised.value.bytes, raised.value.device) == (30 * MEBIBYTE, "cuda:0")
    del kept
    device.allocate(30 * MEBIBYTE)
    device.close()


# -- transfers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, MEBIBYTE - 1, MEBIBYTE + 1, 5 * MEBIBYTE + 3, 71 * MEBIBYTE + 11])
def test_transfers_of_any_size_go_through_pinned_memory(size: int):
    fake = FakeApi()
    device = open_fake(fake)
    data = np.random.default_rng(size).integers(0, 256, size + 1, np.uint8)[1:]  # at an odd address
    buffer, result = device.allocate(size), np.zeros(size, np.uint8)
    points = [device.write(buffer, data, queue=1)]
    points.append(device.read(buffer, result, 0, points, 2))
    points[-1].wait()
    np.testing.assert_array_equal(result, data)
    assert fake.calls["upload"] <= 40
    device.close()
    assert not fake.pinned


def test_a_ring_gets_as_many_slots_as_are_worth_pinning():
    fake = FakeApi()
    device = open_fake(fake)
    buffer = device.allocate(60 * MEBIBYTE)
    data = np.random.default_rng(5).integers(0, 256, 60 * MEBIBYTE, np.uint8)
    counts: list[int] = []
    for size in (3, 7, 20, 60, 60, 60, 60):
        device.write(buffer, data[: size * MEBIBYTE]).wait()
        counts.append(fake.calls["host_allocate"])
    assert counts[0] == 2
    assert counts == sorted(counts)
    assert counts[-1] == 16
    result = np.zeros_like(data)
    device.read(buffer, result).wait()
    np.testing.assert_array_equal(result, data)
    device.close()
    assert not fake.pinned


@pytest.mark.parametrize("seed", range(5))
def test_arrays_placed_together_take_one_block_and_few_moves(seed: int):
    random = np.random.default_rng(seed)
    fake = FakeApi()
    device = open_fake(fake)
    sizes = [0, 1, 3 * MEBIBYTE, *(int(size) for size in 2 ** random.uniform(0, 22, 30))]
    arrays = [random.integers(0, 256, size, np.uint8) for size in random.permutation(sizes)]
    before = fake.calls["pool_allocate"]
    buffers, point = device.place(arrays)
    point.wait()
    assert fake.calls["pool_allocate"] == before + 1
    assert fake.calls["upload"] <= sum(sizes) // (2 * MEBIBYTE) + 2
    for index, array in enumerate(arrays):
        result = np.zeros_like(array)
        device.read(buffers[index], result).wait()
        np.testing.assert_array_equal(result, array)
    used, last = used_bytes(device), buffers[0]
    buffers.clear()
    assert used_bytes(device) == used
    del last
    assert used_bytes(device) < used - sum(sizes)
    device.close()


def used_bytes(device: CudaDevice) -> int:
    """Of the blocks that are in use, and a small one."""
    gc.collect()
    device.allocate(8)  # takes back what nobody has any more
    return device.bytes_used


def test_pinned_arrays_are_moved_by_the_gpu_itself():
    fake = FakeApi()
    device = open_fake(fake)
    size = 3 * MEBIBYTE
    address = fake.host_allocate(size)
    pinned = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
    pinned[:] = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    expected, allocated = pinned.copy(), fake.calls["host_allocate"]
    buffer = device.allocate(size)
    point = device.fill(buffer, 0, [device.write(buffer, pinned)])
    point = device.write(buffer, pinned, 0, [point])
    pinned_result = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(fake.host_allocate(size)))
    device.read(buffer, pinned_result, 0, [point]).wait()
    np.testing.assert_array_equal(pinned_result, expected)
    assert fake.calls["host_allocate"] == allocated + 1
    device.close()


def test_what_was_read_is_there_before_it_is_written_elsewhere():
    device = open_fake()
    data = np.random.default_rng(2).integers(0, 256, 10_000, np.uint8)
    first, second = device.allocate(data.size), device.allocate(data.size)
    between, result = np.zeros_like(data), np.zeros_like(data)
    point = device.write(first, data)
    point = device.read(first, between, 0, [point], 1)
    point = device.write(second, between, 0, [point], 2)  # of the host's memory that the read fills
    device.read(second, result, 0, [point], 3).wait()
    np.testing.assert_array_equal(result, data)
    device.close()


def test_what_the_gpu_read_by_itself_is_there_before_it_is_written_elsewhere():
    fake = FakeApi()
    device = open_fake(fake)
    size = 3 * MEBIBYTE
    pinned = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(fake.host_allocate(size)))
    first, second, busy = device.allocate(size), device.allocate(1000), device.allocate(8)
    point = launch(device, "spin", busy, sizes=[30_000])  # 30 ms
    point = device.fill(first, 77, [point])
    point = device.read(first, pinned, 0, [point])
    point = device.write(second, pinned[:1000], 0, [point])
    result = np.zeros(1000, np.uint8)
    device.read(second, result, 0, [point]).wait()
    np.testing.assert_array_equal(result, np.full(1000, 77, np.uint8))
    device.close()


def test_gpus_wait_for_each_other_by_events():
    fake = FakeApi()
    first, second = open_fake(fake), open_fake(fake)
    data = np.random.default_rng(3).integers(0, 256, 4000, np.uint8)
    here, there, result = first.allocate(4000), second.allocate(4000), np.zeros_like(data)
    gate = HostTimeline()
    opened = gate.next()
    written = first.write(here, data, 0, [opened])
    copied = second.copy(here, there, [written])
    assert not copied.reached
    gate.signal(opened.value)
    second.read(there, result, 0, [copied]).wait(60)
    np.testing.assert_array_equal(result, data)
    waits = fake.calls["stream_wait"]
    second.fill(there, 1, [first.fill(here, 2, queue=3)]).wait()
    assert fake.calls["stream_wait"] <= waits + 1
    first.close()
    second.close()


# -- faults ------------------------------------------------------------------------------------------


def test_a_fault_names_its_kernel_and_the_device_is_lost_after_it():
    device = open_fake()
    data = np.zeros(16, np.uint8)
    buffer, other = device.allocate(16), device.allocate(16)
    faulty = launch(device, "wild", buffer)
    with pytest.raises(KernelFault, match="kernel wild: an access to memory that is not there") as raised:
        faulty.wait()
    assert (raised.value.device, raised.value.kernel, raised.value.usable) == ("cuda:0", "wild", False)
    for action in (
        lambda: device.allocate(1), lambda: device.write(other, data), lambda: device.copy(buffer, other),
        lambda: load(device), lambda: device.profile(True), lambda: device.abort(),
    ):
        with pytest.raises(DeviceLost, match="kernel wild"):
            action()
    device.close()


def fault_among(options: str) -> KernelFault:
    """The fault of the third of four commands."""
    device = open_fake(options=options)
    whole = Reference(0, 0, 64)
    work = [
        Work("launch", (whole,), "count", 3), Work("launch", (whole, whole), "affine", 3, (1,), (0,)),
        Work("launch", (whole,), "trap", 1, (), (1,)),
        Work("copy", (Reference(0, 0, 8), Reference(0, 8, 8)), after=(2,)),
    ]
    point = device.submit(device.record(load(device), work, 1, 0), [device.allocate(64)])
    with pytest.raises(KernelFault) as raised:
        point.wait()
    device.close()
    return raised.value


def test_a_fault_in_a_graph_names_the_kernels_that_it_may_be_of():
    assert fault_among("").kernel == "count or affine or trap"


def test_checking_every_command_finds_the_kernel():
    assert fault_among("?check=1").kernel == "trap"


def test_an_error_of_the_hardware_is_a_lost_device():
    fake = FakeApi()
    device = open_fake(fake)

    def broken(tasks: int, parameters: list[int]) -> None:
        raise Fault(214)

    fake.kernels["count"] = broken
    with pytest.raises(DeviceLost, match="memory that cannot be corrected"):
        launch(device, "count", device.allocate(4)).wait()
    with pytest.raises(DeviceLost):
        device.allocate(4)
    device.close()


# -- tensors of other libraries ----------------------------------------------------------------------


class Other:
    """A tensor of another library, in the memory of a device."""

    def __init__(self, device: CudaDevice, shape: tuple[int, ...], typestr: str, **changes: Any) -> None:
        self.buffer = device.allocate(4096)
        self.__cuda_array_interface__ = {
            "version": 3, "shape": shape, "typestr": typestr, "data": (self.buffer.address, False), "strides": None,
            "stream": None, **changes,
        }


def test_tensors_of_other_libraries_share_their_memory():
    device = open_fake()
    other = Other(device, (3, 5), "<f4")
    data = np.random.default_rng(5).standard_normal((3, 5), np.float32)
    device.write(other.buffer, data).wait()
    shared = device.wrap(other)
    np.testing.assert_array_equal(shared.numpy(), data)
    shared.write(-data)
    result = np.empty_like(data)
    device.read(other.buffer, result).wait()
    np.testing.assert_array_equal(result, -data)
    again = device.wrap(shared)  # and ours are offered in the same way
    assert again.buffer.address == shared.buffer.address and again.shape == (3, 5) and again.dtype == np.float32
    device.close()


@pytest.mark.parametrize(("changes", "message"), [
    ({"strides": (4, 12)}, "contiguous"), ({"data": (8, True)}, "multiple of 16"), ({"data": (16, True)}, "read-only"),
    ({"mask": object()}, "mask"),
])
def test_tensors_that_cannot_be_shared_are_refused(changes: dict[str, Any], message: str):
    device = open_fake()
    with pytest.raises(CallError, match=message):
        device.wrap(Other(device, (3, 5), "<f4", **changes))
    device.close()


def test_memory_that_is_not_the_gpus_is_refused():
    device = open_fake()
    host = np.zeros(64, np.uint8)
    aligned = -(-host.ctypes.data // 16) * 16
    with pytest.raises(DeviceError, match="no GPU's"):
        device.wrap(Other(device, (3,), "<i4", data=(aligned, False)))
    with pytest.raises(CallError, match="lies on device 0 of kind 1"):
        device.wrap(np.zeros(3))
    with pytest.raises(CallError, match="neither __dlpack__"):
        device.wrap([1, 2])
    device.close()


def test_strides_of_extents_of_one_do_not_count():
    device = open_fake()
    wrapped = device.wrap(Other(device, (4, 1, 2), "<i2", strides=(4, 999, 2)))
    assert wrapped.shape == (4, 1, 2) and wrapped.nbytes == 16
    device.close()


def test_dtypes_that_numpy_lacks_have_no_array_interface():
    device = open_fake()
    narrow = DeviceArray(device, device.allocate(4), (2,), np.dtype(ml_dtypes.bfloat16))
    assert not hasattr(narrow, "__cuda_array_interface__")
    device.close()


def test_a_device_that_is_dropped_gives_everything_back():
    fake = FakeApi()
    device = open_fake(fake)
    launch(device, "count", device.allocate(4)).wait()
    data = np.zeros(5 * MEBIBYTE, np.uint8)
    device.write(device.allocate(data.nbytes), data).wait()
    for queue in device._queues:
        queue.stop()  # its thread would go by itself after a while
    del device, queue
    gc.collect()
    assert +fake.alive == {} and fake.retained == 0 and not fake.pinned


def test_launches_hold_their_memory_until_they_have_ended():
    device = open_fake()
    buffer = device.allocate(8)
    address = buffer.address
    gate = HostTimeline()
    opened = gate.next()
    recorded = device.record(load(device), [launch_of("count", [8])], 1, 0)
    point = device.submit(recorded, [buffer], [opened])
    del buffer, recorded
    gc.collect()
    assert all(device.allocate(8).address != address for _ in range(5))
    gate.signal(opened.value)
    assert point.wait(60)
    device.close()
