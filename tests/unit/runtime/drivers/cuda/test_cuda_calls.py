"""Calls with tensors of others on a GPU: on whose stream, in which memory, and what is refused."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.fake import FakeApi, Fault, Graph
from tests.unit.runtime.drivers.cuda.handmade import affine_chain, expected_chain, faulty, many_tensors

from motet.errors import CallError, DeviceError, DeviceLost, OutOfMemoryError
from motet.runtime import dlpack, load
from motet.runtime.device_array import DeviceArray
from motet.runtime.drivers.cuda import driver
from motet.runtime.pointer import Pointer
from motet.runtime.session import Session


class Tensor:
    """A tensor of some library on the GPU of the driver for tests, whose memory is this process's."""

    def __init__(self, array: np.ndarray, stream: int | None = None, strides: tuple[int, ...] | None = None) -> None:
        self.memory = np.zeros(array.nbytes + 64, np.uint8)
        offset = -self.memory.ctypes.data % 64
        self.array = self.memory[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
        self.array[...] = array
        self.stream = stream
        self.strides = strides
        self.read_only = False
        self.shift = 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3, "shape": self.array.shape, "typestr": self.array.dtype.str, "strides": self.strides,
            "data": (self.array.ctypes.data + self.shift, self.read_only), "stream": self.stream,
        }


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    api = FakeApi()
    monkeypatch.setattr(driver, "load_api", lambda: api)
    return api


Open = Callable[..., Session]


@pytest.fixture
def opened(fake: FakeApi):
    sessions: list[Session] = []

    def open_session(length: int, **options: Any) -> Session:
        sessions.append(load(affine_chain(length, **options), devices="cuda:0"))
        return sessions[-1]

    yield open_session
    for gate in fake.gates:
        gate.set()
    for session in sessions:
        session.close()
    assert not fake.blocks and fake.retained == 0 and not fake.alive["event"]


def numbers(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-999, 999, count, np.int32)


@pytest.mark.parametrize("length", [1, 2, 3, 7])
@pytest.mark.parametrize("rows", [None, 1, 31])
def test_results_are_made_on_the_gpu(opened: Open, length: int, rows: int | None):
    session = opened(length, rows=rows)
    for seed in range(4):
        x = numbers(rows or 5 + seed % 2, seed)
        y = session(Tensor(x))
        assert type(y) is DeviceArray
        np.testing.assert_array_equal(y.numpy(), expected_chain(x, length))


@pytest.mark.parametrize("length", [1, 4])
def test_nothing_is_waited_for(opened: Open, fake: FakeApi, length: int):
    """The stream stands still until the call has returned: what is there then was not waited for."""
    session = opened(length, rows=17)
    stream = fake.stream_create()
    first, second = Tensor(numbers(17)), Tensor(numbers(17, 1))
    out = Tensor(np.zeros(17, np.int32))
    release = fake.hold(stream)
    session(first, out=out, stream=stream)
    result = session(second, stream=stream)
    assert not out.array.any()
    release()
    fake.stream_synchronize(stream)
    np.testing.assert_array_equal(out.array, expected_chain(first.array, length))
    np.testing.assert_array_equal(result.numpy(), expected_chain(second.array, length))
    fake.stream_destroy(stream)


@pytest.mark.parametrize("length", [1, 4])
def test_memory_of_others_is_kept_until_it_was_used(opened: Open, fake: FakeApi, length: int):
    """Its library may use it for something else as soon as nobody keeps it."""
    session = opened(length, rows=17)
    stream = fake.stream_create()
    release = fake.hold(stream)
    values, tensors = [numbers(17, seed) for seed in range(3)], []
    results = []
    for x in values:
        tensor = Tensor(x)
        tensors.append(weakref.ref(tensor))
        results.append(session(tensor, stream=stream))
        del tensor
    gc.collect()
    assert all(tensor() is not None for tensor in tensors)
    release()
    fake.stream_synchronize(stream)
    for x, result in zip(values, results, strict=True):
        np.testing.assert_array_equal(result.numpy(), expected_chain(x, length))
    session(Tensor(numbers(17)), stream=stream)
    gc.collect()
    assert all(tensor() is None for tensor in tensors)
    fake.stream_synchronize(stream)
    fake.stream_destroy(stream)


def test_a_stream_that_is_slow_keeps_no_memory_of_another(opened: Open, fake: FakeApi):
    session = opened(4, rows=17)
    slow, quick = fake.stream_create(), fake.stream_create()
    release = fake.hold(slow)
    tensors = {stream: Tensor(numbers(17)) for stream in (slow, quick)}
    kept = {stream: weakref.ref(tensor) for stream, tensor in tensors.items()}
    for stream in (slow, quick):
        session(tensors.pop(stream), stream=stream)
    fake.stream_synchronize(quick)
    session(Tensor(numbers(17)), stream=quick)
    gc.collect()
    assert kept[slow]() is not None and kept[quick]() is None
    release()
    for stream in (slow, quick):
        fake.stream_synchronize(stream)
        fake.stream_destroy(stream)


def test_calls_record_the_same_events_again(opened: Open, fake: FakeApi):
    session = opened(1, rows=8)
    stream, producer = fake.stream_create(), fake.stream_create()
    for turn in range(20):
        x = numbers(8, turn)
        y = session(Tensor(x, producer), stream=stream)
        fake.stream_synchronize(stream)
        np.testing.assert_array_equal(y.numpy(), expected_chain(x, 1))
        if turn == 3:
            made = fake.calls["event_create"]
    assert fake.calls["event_create"] == made
    for each in (stream, producer):
        fake.stream_destroy(each)


def test_a_call_begins_after_what_the_producer_has_on_its_stream(opened: Open, fake: FakeApi):
    session = opened(3, rows=8)
    producer = fake.stream_create()
    x = Tensor(np.zeros(8, np.int32), producer)
    release = fake.hold(producer)
    fake.fill(x.array.ctypes.data, 1, x.array.nbytes, producer)
    y = session(x)
    release()
    np.testing.assert_array_equal(y.numpy(), expected_chain(np.full(8, 0x01010101, np.int32), 3))
    fake.stream_destroy(producer)


def test_results_pass_between_streams_in_order(opened: Open, fake: FakeApi):
    session = opened(3, rows=8)
    one, other = fake.stream_create(), fake.stream_create()
    release = fake.hold(one)
    x = numbers(8)
    y = session(session(Tensor(x), stream=one), stream=other)
    release()
    np.testing.assert_array_equal(y.numpy(), expected_chain(expected_chain(x, 3), 3))
    del y
    for stream in (one, other):
        fake.stream_synchronize(stream)
        fake.stream_destroy(stream)


@pytest.mark.parametrize("length", [1, 4])
def test_a_call_waits_for_events_and_gives_one(opened: Open, fake: FakeApi, length: int):
    session = opened(length, rows=8)
    one, other = fake.stream_create(), fake.stream_create()
    release = fake.hold(one)
    x = numbers(8)
    first = session.enqueue(Tensor(x), stream=one)
    second = session.enqueue(first.result, stream=other, wait=[first.event])
    assert not first.event.done and not second.event.done
    release()
    np.testing.assert_array_equal(second.wait().numpy(), expected_chain(expected_chain(x, length), length))
    assert first.event.done and second.event.done
    with pytest.raises(CallError, match="wait 1: str given; expected an event of CUDA"):
        session.enqueue(Tensor(x), stream=one, wait=[first.event, "event"])
    del first, second
    for stream in (one, other):
        fake.stream_synchronize(stream)
        fake.stream_destroy(stream)


def test_memory_in_flight_on_a_stream_is_not_given_to_another(opened: Open, fake: FakeApi):
    session = opened(2, rows=1000)
    stream = fake.stream_create()
    release = fake.hold(stream)
    dropped = session(Tensor(numbers(1000)), stream=stream)
    address = dropped.buffer.address
    del dropped
    again = session(Tensor(numbers(1000)), stream=stream)
    assert again.buffer.address == address  # for work behind it, at once
    del again
    elsewhere = [session.empty((1000,), np.int32) for _ in range(3)]
    assert address not in [array.buffer.address for array in elsewhere]
    release()
    fake.stream_synchronize(stream)
    elsewhere += [session.empty((1000,), np.int32) for _ in range(2)]
    assert address in [array.buffer.address for array in elsewhere]
    fake.stream_destroy(stream)


def test_arenas_of_one_stream_grow_while_it_works(opened: Open, fake: FakeApi):
    session = opened(3)
    stream = fake.stream_create()
    release = fake.hold(stream)
    inputs = [numbers(count, count) for count in (3, 4000, 5, 100_000, 7)]
    tensors = [Tensor(x) for x in inputs]
    results = [session(x, stream=stream) for x in tensors]
    release()
    for x, y in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(y.numpy(), expected_chain(x, 3))
    fake.stream_synchronize(stream)
    results.clear()
    fake.stream_destroy(stream)


def test_destinations_are_written_in_place(opened: Open, fake: FakeApi):
    session = opened(3, in_place=True, rows=9)
    x, y = Tensor(numbers(9)), Tensor(numbers(9, 1))
    assert session(x, y) is y
    fake.stream_synchronize(0)
    np.testing.assert_array_equal(y.array, expected_chain(x.array, 3))
    with pytest.raises(CallError, match=r"argument 1, a destination, shares memory with argument 0"):
        session(y, y)
    y.read_only = True
    with pytest.raises(CallError, match=r'argument 1 \("y"\): read-only memory given'):
        session(x, y)
    with pytest.raises(CallError, match="a destination in the host's memory"):
        session(x, np.zeros(9, np.int32))


def test_calls_with_tensors_can_be_measured(opened: Open, fake: FakeApi):
    session = opened(3, rows=6)
    x = Tensor(numbers(6))
    fake.foreign.append((x.array.ctypes.data, x.array.nbytes, 0))
    value, events = session.main.trace(x)
    np.testing.assert_array_equal(value, expected_chain(x.array, 3))
    assert [event.event.kind for event in events].count("launch") == 3
    assert not any(event.event.kind == "write" for event in events)  # it was there
    assert session.profile(x)


def test_submitted_calls_are_on_a_stream_too(opened: Open, fake: FakeApi):
    session = opened(2, rows=6)
    x = Tensor(numbers(6))
    stream = fake.stream_create()
    for given in (None, stream):
        y = session.submit(x, stream=given).result()
        assert y.buffer.stream == (given or 0)
        np.testing.assert_array_equal(y.numpy(), expected_chain(x.array, 2))
    fake.stream_destroy(stream)


def test_arguments_of_the_host_are_sent(opened: Open, fake: FakeApi):
    session = opened(1, in_place=True, rows=9)
    x, y = numbers(9), Tensor(numbers(9, 1))
    kept = x.copy()
    release = fake.hold(0)
    session(x, y)
    x[:] = 0  # which the call has read
    release()
    fake.stream_synchronize(0)
    np.testing.assert_array_equal(y.array, expected_chain(kept, 1))


def test_what_does_not_fit_is_refused(opened: Open):
    session = opened(1, rows=6)
    x = numbers(6)
    skewed = Tensor(x)
    skewed.shift = 4
    refused: list[tuple[Any, str]] = [
        (Tensor(x.astype(np.float32)), r'argument 0 \("x"\): dtype f32 given, i32 expected'),
        (Tensor(x[:5]), r'argument 0 \("x"\): shape 5 given, 6 expected'),
        (Tensor(x, strides=(8,)), r"strides of \[8\] bytes given; expected a contiguous tensor"),
        (skewed, r"expected a multiple of 16; copy it"),
    ]
    for tensor, message in refused:
        with pytest.raises(CallError, match=message):
            session(tensor)
    with pytest.raises(CallError, match=r"out in the host's memory; expected a tensor on cuda:0"):
        session(Tensor(x), out=np.zeros(6, np.int32))
    with pytest.raises(CallError, match="out for result 0 shares memory with argument 0"):
        shared = Tensor(x)
        session(shared, out=shared)
    with pytest.raises(CallError, match=r"2 arguments given, 1 expected"):
        session(Tensor(x), Tensor(x))


def test_streams_are_looked_at(opened: Open, fake: FakeApi):
    session = opened(1, rows=6)
    x = Tensor(numbers(6))
    stream = fake.stream_create()

    class TorchLike:
        cuda_stream = stream

    class CuPyLike:
        ptr = stream

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, stream

    for given in (stream, TorchLike(), CuPyLike(), Protocol(), 0):
        np.testing.assert_array_equal(session(x, stream=given).numpy(), expected_chain(x.array, 1))
    with pytest.raises(CallError, match=r"stream 0x270f is not one of cuda:0"):
        session(x, stream=9999)
    with pytest.raises(CallError, match="stream: str given; expected a stream of PyTorch's or CuPy's"):
        session(x, stream="mine")
    fake.stream_destroy(stream)


def test_on_a_captured_stream_commands_become_part_of_the_others_graph(opened: Open, fake: FakeApi):
    session = opened(4, rows=6)
    stream = fake.stream_create()
    x, y = Tensor(numbers(6)), Tensor(np.zeros(6, np.int32))
    for _ in range(3):
        session(x, out=y, stream=stream)
    graphs, launches = fake.calls["executable_launch"], fake.calls["launch"]
    fake.capturing.add(stream)
    fake.streams[stream].work.recorded = recorded = []
    session(x, out=y, stream=stream)
    fake.streams[stream].work.recorded = None
    fake.capturing.clear()
    assert fake.calls["executable_launch"] == graphs and fake.calls["launch"] == launches + 4
    other = Tensor(numbers(6, 9))
    session(other, stream=stream)  # which uses none of the memory that the graph has
    fake.stream_synchronize(stream)
    y.array[:] = 0
    for command in recorded:
        command()
    np.testing.assert_array_equal(y.array, expected_chain(x.array, 4))
    fake.stream_synchronize(stream)
    fake.stream_destroy(stream)


def launch_captured(fake: FakeApi, graph: Graph) -> None:
    """Runs a captured graph three times, in some order of its commands."""
    for _ in range(3):
        fake.executable_launch(fake.graph_instantiate(graph), 0)
    fake.stream_synchronize(0)


def test_a_captured_call_keeps_its_branches(fake: FakeApi):
    stream = fake.stream_create()
    with load(many_tensors(5, 5, 6), devices="cuda:0") as session:
        x, y = ([Tensor(numbers(6, 5 * turn + index)) for index in range(5)] for turn in range(2))
        session(*x, out=tuple(y), stream=stream)
        fake.stream_synchronize(stream)
        fake.begin_capture(stream)
        session(*x, out=tuple(y), stream=stream)
        graph = fake.end_capture(stream)
        assert [node.after for node in graph.nodes] == [[]] * 5
        for tensor in y:
            tensor.array[:] = 0
        launch_captured(fake, graph)
        for index in range(5):
            np.testing.assert_array_equal(y[index].array, 2 * x[index].array + index)
    fake.stream_destroy(stream)
    assert not fake.alive["stream"] and not fake.alive["event"]


def test_captures_of_several_streams_use_streams_of_their_own(fake: FakeApi):
    streams = [fake.stream_create() for _ in range(2)]
    with load(many_tensors(3, 3, 6), devices="cuda:0") as session:
        x = [Tensor(numbers(6, index)) for index in range(3)]
        outs = [[Tensor(numbers(6, 9)) for _ in range(3)] for _ in streams]
        for _ in range(2):  # the streams beside them are captured again
            for stream in streams:
                fake.begin_capture(stream)
            for _ in range(2):  # the second call comes after the first one
                for stream, out in zip(streams, outs, strict=True):
                    session(*x, out=tuple(out), stream=stream)
            graphs = [fake.end_capture(stream) for stream in streams]
            for graph, out in zip(graphs, outs, strict=True):
                assert [len(node.after) for node in graph.nodes] == [0, 0, 0, 3, 3, 3]
                launch_captured(fake, graph)
                for index in range(3):
                    np.testing.assert_array_equal(out[index].array, 2 * x[index].array + index)
        y = session(*x)  # of which nothing is captured any more
        np.testing.assert_array_equal(y[2].numpy(), 2 * x[2].array + 2)
    for stream in streams:
        fake.stream_destroy(stream)


def test_addresses_are_tensors_where_the_caller_says_what_lies_there(opened: Open, fake: FakeApi):
    session = opened(2, rows=6)
    x, y = Tensor(numbers(6)), Tensor(np.zeros(6, np.int32))
    given, out = (Pointer(tensor.array.ctypes.data, (6,), "i32", owner=tensor) for tensor in (x, y))
    assert session(given, out=out) is out
    fake.stream_synchronize(0)
    np.testing.assert_array_equal(y.array, expected_chain(x.array, 2))
    with pytest.raises(CallError, match=r"dtype f32 given, i32 expected"):
        session(Pointer(x.array.ctypes.data, (6,), np.float32))
    with pytest.raises(CallError, match=r"lies on cuda:1; this session works on cuda:0"):
        session(Pointer(x.array.ctypes.data, (6,), "i32", "cuda:1"))
    with pytest.raises(CallError, match=r"shape 5 given, 6 expected"):
        session(Pointer(x.array.ctypes.data, (5,), "i32"))
    with pytest.raises(CallError, match=r"dtype 'i7': unknown"):
        session(Pointer(x.array.ctypes.data, (6,), "i7"))


def test_results_say_which_stream_they_are_used_on(opened: Open, fake: FakeApi):
    session = opened(2, rows=6)
    stream, consumer = fake.stream_create(), fake.stream_create()
    x = Tensor(numbers(6))
    release = fake.hold(stream)
    y = session(x, stream=stream)
    assert y.__cuda_array_interface__["stream"] == stream
    assert session(x, stream=0).__cuda_array_interface__["stream"] == 1  # as 0 may not be said
    assert "stream" not in session.empty((3,), np.int32).__cuda_array_interface__
    assert y.__dlpack_device__() == (2, 0)
    taken = dlpack.export_from(y, "a test", consumer)
    seen: list[list[int]] = []
    memory = np.frombuffer((ctypes.c_uint8 * 24).from_address(taken.address), np.int32)
    fake.streams[consumer].work.put(lambda: seen.append(memory.tolist()))
    assert not seen
    release()
    fake.stream_synchronize(consumer)
    assert seen == [expected_chain(x.array, 2).tolist()]
    with pytest.raises(BufferError, match="expected device"):
        y.__dlpack__(dl_device=(1, 0))
    del y, taken
    for each in (stream, consumer):
        fake.stream_synchronize(each)
        fake.stream_destroy(each)


def test_too_much_memory_is_named_with_its_size(opened: Open):
    session = opened(3)
    with pytest.raises(OutOfMemoryError, match=r"device cuda:0: not enough memory: [\d,]+ bytes asked for"):
        session(Tensor(np.zeros(100 << 20, np.int32)))
    x = numbers(5)
    np.testing.assert_array_equal(session(Tensor(x)).numpy(), expected_chain(x, 3))


def test_a_fault_is_told_by_the_next_call(opened: Open, fake: FakeApi):
    session = opened(3, rows=6)
    x = Tensor(numbers(6))
    session(x)

    def broken(tasks: int, parameters: list[int]) -> None:
        raise Fault(700)

    fake.kernels["affine"] = broken
    faulty = opened(3, rows=6)
    faulty(x)
    fake.stream_synchronize_quietly(0)
    with pytest.raises(DeviceError, match="an access to memory that is not there"):
        faulty(x)
    with pytest.raises(DeviceLost, match="an access to memory that is not there"):
        faulty(x)
    with pytest.raises(DeviceError, match="an access to memory that is not there"):
        session(x)
    fake.broken = 0


def test_tensors_for_sessions_on_the_host_are_refused(fake: FakeApi):
    pytest.importorskip("torch_mlir")
    from motet import builder, compile

    with builder.Graph("main") as graph:
        graph.result(graph.input("x", (6,), "i32") + 1, "y")
    message = r"lies on cuda:0, and nothing of this session does; load it with"
    with load(compile(graph)) as session, pytest.raises(CallError, match=message):
        session(Tensor(numbers(6)))


def test_devices_that_check_say_at_once_which_kernel_it_was(fake: FakeApi):
    session = load(faulty("wild"), devices="cuda:0?check=1")
    x = Tensor(numbers(16))
    with pytest.raises(DeviceLost, match="kernel wild: an access to memory that is not there"):
        session(x)
    fake.broken = 0
    session.close()


def test_there_may_be_no_elements(opened: Open):
    session = opened(3)
    for _ in range(4):
        y = session(Tensor(numbers(0)))
        assert y.shape == (0,) and y.numpy().shape == (0,)


def test_faults_of_whole_functions_are_named(fake: FakeApi):
    session = load(faulty("wild"), devices="cuda:0")
    x = Tensor(numbers(16))
    session(x)
    fake.stream_synchronize_quietly(0)
    for _ in range(2):
        with pytest.raises(DeviceLost, match="an access to memory that is not there"):
            session(x)
    fake.broken = 0
    session.close()
