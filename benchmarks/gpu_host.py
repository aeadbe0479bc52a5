"""The host's share of a call on a GPU, without a GPU: microseconds from the arguments to the driver.

    python -m benchmarks.gpu_host                     # with PyTorch's rows, if it is installed
    python -m benchmarks.gpu_host --counts 1 313 --ways plain bound

The driver is that of the unit tests, except that it does no work: what is left is what Motet does on the host, and the
floor is an empty call of Python, 0.05 µs. Each figure is the least of many rounds. PyTorch's tensors are in the memory
of the host, as the short call looks at no memory.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.unit.runtime.drivers.cuda.fake import Commands, FakeApi
from tests.unit.runtime.drivers.cuda.handmade import many_tensors
from tests.unit.runtime.drivers.cuda.test_cuda_calls import Tensor

from motet.runtime import Pointer, load
from motet.runtime.dlpack import make_capsule
from motet.runtime.drivers.cuda import calls, driver, libraries
from motet.runtime.drivers.cuda.device import CudaDevice
from motet.runtime.drivers.cuda.torch_call import torch_call
from motet.runtime.plan_executor import PlacedInstance
from motet.runtime.session import Session

ROWS = 16
_SECONDS = 0.2  # for a figure
_NOWHERE = -1  # the GPU's number of PyTorch's tensors in the memory of the host


class IdleCommands(Commands):
    """Commands that are done as soon as they are put on their stream."""

    def put(self, work: Callable[[], object] | None) -> None:
        if work is None:
            super().put(work)


class IdleApi(FakeApi):
    """The tests' driver without its bookkeeping, whose GPU has done all work at once."""

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def stream_create(self) -> int:
        handle = super().stream_create()
        self.streams[handle].work.put(None)
        self.streams[handle].work = IdleCommands()
        return handle

    def stream_destroy(self, stream: int) -> None:
        del self.streams[stream]

    def stream_synchronize(self, stream: int) -> None: ...

    def event_record(self, event: Any, stream: int) -> None: ...

    def stream_wait(self, stream: int, event: Any) -> None: ...

    def launch(self, launch: Any, stream: int, early: bool = False) -> None: ...

    def executable_launch(self, executable: Any, stream: int) -> None: ...

    def try_executable_launch(self, executable: Any, stream: int) -> int:
        return 0


class Exporter:
    """A tensor of a library that knows DLPack."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.tensor = Tensor(values)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None) -> Any:
        array = self.tensor.array
        return make_capsule(array.ctypes.data, array.shape, array.dtype, (2, 0), self, versioned=True)


def _pointer(values: np.ndarray[Any, Any]) -> Pointer:
    tensor = Tensor(values)
    return Pointer(tensor.array.ctypes.data, values.shape, "i32", owner=tensor)


class _CpuTorch:
    """PyTorch whose only device is the processor."""

    cuda = SimpleNamespace(
        Stream=type("Stream", (), {}), device_count=lambda: 2, is_current_stream_capturing=lambda: False,
    )
    _C = SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: 0)

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._C._dynamo = torch._C._dynamo

    def device(self, kind: str, ordinal: int) -> Any:
        return self._torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _aligned(torch: Any) -> Callable[[np.ndarray[Any, Any]], Any]:
    def make(values: np.ndarray[Any, Any]) -> Any:
        memory = torch.zeros(values.size + 16, dtype=torch.int32)
        begin = -(memory.data_ptr() // 4) % 16
        return memory[begin : begin + values.size]

    return make


def _prepare_for_torch(session: Session, torch: Any) -> None:
    """Give a session the short call for PyTorch's tensors, as after a call with them on a GPU."""
    bound: Any = session._bound
    instance: PlacedInstance = bound.instance(session.signature, {})
    direct = calls._direct(instance, bound.opened[0].device)
    assert direct is not None

    def refuse(arguments: Sequence[Any], stream: Any) -> Any:
        raise AssertionError("the short call does not take these tensors")

    library: Any = libraries.Torch(_CpuTorch(torch))  # pyright: ignore[reportArgumentType]
    made: Any = torch_call(library, direct, session.signature, instance, _NOWHERE, refuse)
    function: Any = session.main
    function.prepared, function._on_stream = made.short, made.on_stream


def least(call: Callable[[], Any]) -> float:
    """The microseconds of a call."""
    for _ in range(5):
        call()
    begin = time.perf_counter()
    call()
    number = max(1, int(0.005 / max(time.perf_counter() - begin, 1e-7)))
    found, end = float("inf"), time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(number):
            call()
        found = min(found, (time.perf_counter() - begin) / number)
    return found * 1e6


def together(steps: Sequence[Callable[[], Any]], number: int = 2000) -> float:
    """The microseconds in which each of several threads makes a call."""
    found = float("inf")
    for _ in range(5):
        barrier = threading.Barrier(len(steps) + 1)

        def work(step: Callable[[], Any], barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            for _ in range(number):
                step()

        threads = [threading.Thread(target=work, args=(step,)) for step in steps]
        for thread in threads:
            thread.start()
        barrier.wait()
        begin = time.perf_counter()
        for thread in threads:
            thread.join()
        found = min(found, (time.perf_counter() - begin) / number)
    return found * 1e6


def ways(session: Session, tensors: Sequence[Any], outs: Sequence[Any]) -> dict[str, Callable[[], Any]]:
    out = outs[0] if len(outs) == 1 else tuple(outs)
    return {
        "plain": lambda: session(*tensors), "out": lambda: session(*tensors, out=out),
        "bound": session.bind(*tensors), "bound, out": session.bind(*tensors, out=out),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 10, 100, 313])
    parser.add_argument("--results", type=int, nargs="+", default=[1, 100], help="at most as many as arguments")
    parser.add_argument("--ways", nargs="+", default=["plain", "out", "bound, out"])
    parser.add_argument("--kinds", nargs="+")
    options = parser.parse_args()
    torch = _torch()
    kinds: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
        "interface": Tensor, "DLPack": Exporter, "Pointer": _pointer,
    }
    kinds |= {} if torch is None else {"torch": _aligned(torch)}
    heads = "  ".join(f"{way:>10}" for way in options.ways)
    print(f"{'tensors':10} {'arguments':>9} {'results':>7}  {heads}  µs")
    for kind in options.kinds or kinds:
        for count in options.counts:
            for results in sorted({min(each, count) for each in options.results}):
                print(f"{kind:10} {count:9} {results:7}  ", end="", flush=True)
                print("  ".join(f"{figure:10.1f}" for figure in _row(kinds[kind], torch if kind == "torch" else None,
                                                                     count, results, options.ways)), flush=True)
    for kind in options.kinds or kinds:
        for threads in (1, 2):
            print(f"{kind}: {threads} sessions, a thread each, 10 arguments: "
                  f"{_threads(kinds[kind], torch if kind == 'torch' else None, threads):.1f} µs", flush=True)


def _opened(api: IdleApi, torch: Any, count: int, results: int) -> Session:
    with patch.object(driver, "load_api", lambda: api):
        session = load(many_tensors(count, results, ROWS), devices="cuda:0")
    if torch is not None:
        _prepare_for_torch(session, torch)
    bound: Any = session._bound
    device: CudaDevice = bound.opened[0].device
    if not api._stack():
        api.push(device.current.context)  # as other libraries do
    return session


def _row(make: Callable[[np.ndarray[Any, Any]], Any], torch: Any, count: int, results: int,
         chosen: Sequence[str]) -> list[float]:
    api = IdleApi()
    with _opened(api, torch, count, results) as session:
        tensors, outs = ([make(np.zeros(ROWS, np.int32)) for _ in range(each)] for each in (count, results))
        found = ways(session, tensors, outs)
        return [least(found[way]) for way in chosen]


def _threads(make: Callable[[np.ndarray[Any, Any]], Any], torch: Any, threads: int) -> float:
    api = IdleApi()
    sessions = [_opened(api, torch, 10, 1) for _ in range(threads)]
    steps: list[Callable[[], Any]] = []
    for session in sessions:
        tensors = [make(np.zeros(ROWS, np.int32)) for _ in range(10)]
        step = session.bind(*tensors, out=make(np.zeros(ROWS, np.int32)), stream=api.stream_create())
        step()
        steps.append(step)
    found = together(steps)
    for session in sessions:
        session.close()
    return found


if __name__ == "__main__":
    main()
