"""What only a GPU can tell: bytes that arrive, tensors that PyTorch shares, programs that Motet compiled."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.opening import KERNELS, load

import motet
from motet.runtime.device import Reference, Work, find_device, open_device, probe
from motet.runtime.drivers.cuda.device import CudaDevice

_GPU = probe("cuda")[0]
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not _GPU.available, reason=_GPU.reason)]


@pytest.fixture
def device() -> Iterator[CudaDevice]:
    opened = open_device(find_device("cuda:0"))
    assert isinstance(opened, CudaDevice)
    yield opened
    opened.close()


@pytest.mark.parametrize("size", [1, (1 << 20) + 1, (17 << 20) + 5, (150 << 20) + 3])
def test_bytes_arrive(device: CudaDevice, size: int):
    data = np.random.default_rng(size).integers(0, 256, size + 1, np.uint8)[1:]
    first, second, result = device.allocate(size), device.allocate(size), np.empty_like(data)
    point = device.copy(first, second, [device.write(first, data, queue=1)], 2)
    device.read(second, result, 0, [point], 3).wait()
    np.testing.assert_array_equal(result, data)


def test_graphs_run_on_other_buffers_each_time(device: CudaDevice):
    count = 1009
    whole = [Reference(index, 0, 4 * count) for index in range(2)]
    work = [Work("launch", (whole[0], whole[1]), "affine", count, (1,))]
    work += [Work("launch", (whole[1], whole[1]), "affine", count, (2,), (index,)) for index in range(20)]
    recorded = device.record(load(device), work, 2, 0)
    random = np.random.default_rng(6)
    buffers = [device.allocate(4 * count) for _ in range(24)]
    for turn in range(40):
        x = random.integers(-99, 99, count, np.int32)
        source, target = (buffers[int(place)] for place in random.choice(24, 2, replace=False))
        result, expected = np.empty_like(x), 2 * x + np.int32(1)
        for _ in range(20):
            expected = 2 * expected + np.int32(2)
        point = device.submit(recorded, [source, target], [device.write(source, x)], turn % device.queues)
        device.read(target, result, 0, [point]).wait()
        np.testing.assert_array_equal(result, expected)


def test_kernels_get_all_the_shared_memory_that_there_is(device: CudaDevice):
    path = next(name for name in KERNELS if name.endswith("/count.ptx"))
    facts = json.loads(KERNELS[path.replace(".ptx", ".json")]) | {"shared": device.gpu.shared}
    executable = device.load([KERNELS[path], json.dumps(facts).encode()], ["a/count.ptx", "a/count.json"])
    buffer, result = device.allocate(400), np.empty(100, np.int32)
    point = device.fill(buffer, 0)
    recorded = device.record(executable, [Work("launch", (Reference(0, 0, 400),), "count", 100)], 1, 0)
    device.read(buffer, result, 0, [device.submit(recorded, [buffer], [point])]).wait()
    np.testing.assert_array_equal(result, np.ones(100, np.int32))


def test_tensors_of_pytorch_share_their_memory(device: CudaDevice):
    torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
    for dtype in ("float32", "bfloat16", "int64", "uint8"):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            tensor = torch.arange(60, device="cuda").to(getattr(torch, dtype)).reshape(3, 4, 5)
            for _ in range(50):
                tensor = tensor + 1
            shared = device.wrap(tensor)  # waits on the GPU for what PyTorch has queued
        assert shared.shape == (3, 4, 5)
        expected = np.arange(50, 110).reshape(3, 4, 5)
        np.testing.assert_array_equal(shared.numpy().astype(np.int64), expected)
        shared.write((expected - 7).astype(shared.dtype))
        assert tensor.to(torch.int64).cpu().numpy().tolist() == (expected - 7).tolist()
    back = torch.as_tensor(shared, device="cuda")
    assert back.data_ptr() == tensor.data_ptr() and back.dtype == torch.uint8


def test_tensors_that_pytorch_dropped_stay_while_they_are_shared(device: CudaDevice):
    torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
    shared = device.wrap(torch.full((1000,), 3.5, device="cuda"))
    torch.zeros((1000,), device="cuda")
    np.testing.assert_array_equal(shared.numpy(), np.full(1000, 3.5, np.float32))


def test_compiled_programs_give_what_numpy_gives():
    for name in ("torch_mlir", "triton"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"no {name}: nothing can be compiled here")
    from motet import builder

    random = np.random.default_rng(7)
    weights = random.standard_normal((37, 53), np.float32)
    with builder.Graph("layer") as graph:
        x = graph.input("x", ("rows", 37))
        graph.result(builder.relu(x @ graph.constant(weights, name="w")), "y")
    artifact = motet.compile(graph, devices="cuda")
    with motet.load(artifact, devices="cuda:0") as session:
        for rows in (1, 17, 200):
            x = random.standard_normal((rows, 37), np.float32)
            np.testing.assert_allclose(session(x), np.maximum(x @ weights, 0), rtol=1e-4, atol=1e-4)
