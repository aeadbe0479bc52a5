"""On a GPU: calls with PyTorch's and CuPy's tensors, on their streams, and values between two GPUs."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.handmade import affine_chain, expected_chain, two_gpus

from motet.errors import CallError
from motet.runtime import load
from motet.runtime.device import probe
from motet.runtime.device_array import DeviceArray

_GPUS = probe("cuda")
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not _GPUS[0].available, reason=_GPUS[0].reason)]

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks") if _GPUS[0].available else None
two = pytest.mark.skipif(len(_GPUS) < 2, reason="there is one GPU")


def vector(count: int, seed: int, device: str = "cuda:0") -> Any:
    return torch.from_numpy(np.random.default_rng(seed).integers(-99, 99, count, np.int32)).to(device)


def expected(x: Any, length: int) -> Any:
    return expected_chain(x.to(torch.int64), length).to(torch.int32)


@pytest.mark.parametrize("length", [1, 2, 3, 12])
@pytest.mark.parametrize("rows", [None, 1, 1009])
def test_results_are_tensors_of_the_gpu(length: int, rows: int | None):
    with load(affine_chain(length, rows=rows), devices="cuda:0") as session:
        for turn in range(30):
            x = vector(rows or 1 + turn % 3 * 100, turn)
            y = session(x)
            assert y.is_cuda and y.dtype == torch.int32
            assert torch.equal(y, expected(x, length))


def late(tensor: Any, value: Any) -> None:
    """Sets the elements after a good while of other work on the current stream."""
    torch.cuda._sleep(20_000_000)
    tensor.copy_(value)


@pytest.mark.parametrize("length", [1, 5])
def test_calls_are_ordered_by_the_current_stream_and_wait_for_nothing(length: int):
    with load(affine_chain(length, rows=1000), devices="cuda:0") as session:
        values = [vector(1000, seed) for seed in range(5)]
        session(values[0])
        session(values[0])
        for stream in (torch.cuda.Stream(), torch.cuda.default_stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                x = torch.zeros_like(values[0])
                torch.cuda.synchronize()
                for value in values:
                    late(x, value)
                    y = session(x)
                    assert not stream.query()  # it did not wait
                    x.zero_()  # behind the call
                    assert torch.equal(y, expected(value, length))


def test_submitted_calls_are_on_the_stream_that_was_current():
    with load(affine_chain(3, rows=1000), devices="cuda:0") as session:
        value = vector(1000, 1)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.zeros_like(value)
            for _ in range(4):
                x.zero_()
                late(x, value)
                assert torch.equal(session.submit(x).result(), expected(value, 3))


def test_an_explicit_stream_is_used():
    with load(affine_chain(3, rows=1000), devices="cuda:0") as session:
        side = torch.cuda.Stream()
        x, value = torch.zeros(1000, dtype=torch.int32, device="cuda"), vector(1000, 1)
        session(x, stream=side)  # after which PyTorch has memory for the stream, and need not ask the driver
        for given in (side, side.cuda_stream, side, side.cuda_stream):
            for out in (None, torch.empty_like(x)):
                x.zero_()
                torch.cuda.synchronize()
                with torch.cuda.stream(side):
                    late(x, value)
                y = session(x, stream=given, out=out)
                assert out is None or y is out
                assert not side.query()  # it did not wait
                side.synchronize()
                assert torch.equal(y, expected(value, 3))


def test_memory_of_results_that_are_dropped_is_not_written_by_others():
    with load(affine_chain(4, rows=1 << 16), devices="cuda:0") as session:
        streams = [torch.cuda.Stream() for _ in range(3)]
        inputs = [vector(1 << 16, seed) for seed in range(3)]
        torch.cuda.synchronize()
        for turn in range(20):
            results: list[Any] = []
            for stream, x in zip(streams, inputs, strict=True):
                with torch.cuda.stream(stream):
                    if turn % 4 == 0:
                        torch.cuda._sleep(2_000_000)
                    session(session(session(x)))
                    results.append(session(x))
            torch.cuda.synchronize()
            for x, y in zip(inputs, results, strict=True):
                assert torch.equal(y, expected(x, 4))


class Foreign:
    """A tensor that nobody knows but by its interface."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


def test_results_of_our_own_stay_until_their_stream_has_used_them():
    with load(affine_chain(3, rows=1 << 16), devices="cuda:0") as session:
        x = Foreign(vector(1 << 16, 3))
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream().cuda_stream for _ in range(3)]
        kept: list[tuple[DeviceArray, int]] = []
        for turn in range(60):
            y: Any = x
            for _ in range(1 + turn % 3):
                y = session(y, stream=streams[turn % 3])
            kept.append((y, 1 + turn % 3))
            kept = kept[-5:]
        for y, times in kept:
            wanted = x.tensor
            for _ in range(times):
                wanted = expected(wanted, 3)
            np.testing.assert_array_equal(y.numpy(), wanted.cpu().numpy())
        del y, kept
        gc.collect()


def test_strided_tensors_are_copied_on_their_stream_and_destinations_are_refused():
    with load(affine_chain(1, rows=100), devices="cuda:0") as session:
        wide = vector(300, 5)
        for x in (wide[::3], wide[1:101], wide[:100].flip(0)):
            assert torch.equal(session(x), expected(x, 1))
        with pytest.raises(CallError, match="a destination must be contiguous and aligned"):
            session(wide[:100], out=torch.zeros(200, dtype=torch.int32, device="cuda")[::2])


@pytest.mark.parametrize("length", [1, 6])
def test_calls_can_be_captured(length: int):
    with load(affine_chain(length, rows=777), devices="cuda:0") as session:
        x, y = vector(777, 1), torch.zeros(777, dtype=torch.int32, device="cuda")
        for _ in range(3):
            session(x, out=y)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = session(x)
            session(made, out=y)
        for seed in range(5):
            x.copy_(vector(777, seed))
            y.zero_()
            graph.replay()
            session(vector(777, 99))  # in memory of its own
            assert torch.equal(y, expected(expected(x, length), length))


def test_threads_share_a_session():
    with load(affine_chain(4, rows=999), devices="cuda:0") as session:
        wrong: list[int] = []

        def work(seed: int) -> None:
            with torch.cuda.stream(torch.cuda.Stream()):
                x = vector(999, seed)
                for _ in range(100):
                    if not torch.equal(session(x), expected(x, 4)):
                        wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_cupy():
    cupy: Any = pytest.importorskip("cupy")
    with load(affine_chain(3, rows=500), devices="cuda:0") as session:
        x = cupy.arange(500, dtype=cupy.int32)
        y = session(x)
        assert isinstance(y, cupy.ndarray)
        np.testing.assert_array_equal(cupy.asnumpy(y), expected_chain(np.arange(500), 3))
        with cupy.cuda.Stream(non_blocking=True):
            late_x = x + 7
            y = session(late_x[::-1])
            np.testing.assert_array_equal(cupy.asnumpy(y), expected_chain(np.arange(506, 6, -1), 3))


def test_arrays_of_the_host_beside_tensors_of_the_gpu():
    with load(affine_chain(2, in_place=True, rows=64), devices="cuda:0") as session:
        y = torch.zeros(64, dtype=torch.int32, device="cuda")
        for seed in range(5):
            x = vector(64, seed, "cpu")
            assert session(x.numpy() if seed % 2 else x, y) is y
            assert torch.equal(y.cpu(), expected(x, 2))


def in_a_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_too_much_memory_is_an_error_with_its_size():
    said = in_a_process("""
import torch, motet.errors
from tests.unit.runtime.drivers.cuda.handmade import affine_chain
from motet.runtime import load
with load(affine_chain(40), devices="cuda:0") as session:
    rows = 1 << 28
    free, _ = torch.cuda.mem_get_info()
    held = torch.zeros(free - 20 * 4 * rows, dtype=torch.uint8, device="cuda") if free > 20 * 4 * rows else None
    x = torch.zeros(rows, dtype=torch.int32, device="cuda")
    try:
        session(x, out=x.new_zeros(x.shape))
    except motet.errors.OutOfMemoryError as error:
        print("said:", error, error.bytes)
    small = torch.arange(7, dtype=torch.int32, device="cuda")
    del x, held
    print("then:", session(small).tolist())
""")
    assert "said: device cuda:0: not enough memory:" in said, said
    assert f"then: {expected_chain(np.arange(7, dtype=np.int32), 40).tolist()}" in said, said


@pytest.mark.parametrize(("kernel", "reason"), [("trap", "it failed"), ("wild", "memory that is not there")])
def test_a_kernel_that_goes_wrong_is_told_by_the_next_call(kernel: str, reason: str):
    said = in_a_process(f"""
import torch, motet.errors
from tests.unit.runtime.drivers.cuda.handmade import affine_chain, faulty
from motet.runtime import load
x = torch.zeros(16, dtype=torch.int32, device="cuda")
session, other = load(faulty({kernel!r}), devices="cuda:0"), load(affine_chain(1), devices="cuda:0")
other(x)
session(x)
try:
    torch.cuda.synchronize()
except RuntimeError:
    pass
for call in (session, other, session):
    try:
        call(x)
    except (motet.errors.DeviceError, RuntimeError) as error:
        print("said:", type(error).__name__, error)
session.close()
print("closed")
""")
    assert "said: DeviceLost device cuda:0: lost: " in said and reason in said and "closed" in said, said


@two
@pytest.mark.parametrize("result", [0, 1])
def test_values_go_from_gpu_to_gpu(result: int):
    with load(two_gpus(1 << 20, result)) as session:
        for seed in range(3):
            x = vector(1 << 20, seed)
            y = session(x)
            assert y.get_device() == result
            assert torch.equal(y.cpu(), (4 * x + 1).cpu())
            np.testing.assert_array_equal(session(x.cpu().numpy()), (4 * x + 1).cpu().numpy())


@two
def test_each_gpu_has_sessions_and_streams_of_its_own():
    artifact = affine_chain(3, rows=100)
    with load(artifact, devices="cuda:0") as first, load(artifact, devices="cuda:1") as second:
        for seed in range(6):
            for number, session in enumerate((first, second)):
                x = vector(100, seed, f"cuda:{number}")
                call: Callable[[], Any] = lambda session=session, x=x: session(x)  # noqa: E731
                with torch.cuda.device(seed % 2):  # whatever is current
                    assert torch.equal(call(), expected(x, 3)) and call().get_device() == number
        with pytest.raises(CallError, match=r"lies on cuda:1; this session works on cuda:0; copy it there"):
            first(vector(100, 0, "cuda:1"))
        with pytest.raises(CallError, match=r"is not one of cuda:0; expected one of the GPU on which"):
            first(vector(100, 0), stream=torch.cuda.Stream("cuda:1"))
