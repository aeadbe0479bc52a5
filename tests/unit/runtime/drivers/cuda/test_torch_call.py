"""The short call for PyTorch's tensors, with PyTorch's CPU tensors in the place of a GPU's: it looks at no memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.fake import FakeApi
from tests.unit.runtime.drivers.cuda.handmade import affine_chain, expected_chain, many_tensors

from motet.artifact.reader import Artifact
from motet.runtime import load
from motet.runtime.drivers.cuda import driver
from motet.runtime.drivers.cuda.calls import _direct  # pyright: ignore[reportPrivateUsage]
from motet.runtime.drivers.cuda.libraries import Torch
from motet.runtime.drivers.cuda.torch_call import TorchCall, torch_call
from motet.runtime.plan_executor import PlacedInstance

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

ROWS = 8
NOWHERE = -1  # what CPU tensors give as their GPU


class CpuTorch:
    """PyTorch, but that the only device is the CPU."""

    class cuda:  # noqa: N801 - a module
        class Stream:
            def __init__(self, handle: int) -> None:
                self.cuda_stream = handle

        @staticmethod
        def device_count() -> int:
            return 2

        @staticmethod
        def is_current_stream_capturing() -> bool:
            return False

    _C = SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: 0, _dynamo=torch._C._dynamo)

    @staticmethod
    def device(kind: str, ordinal: int) -> Any:
        return torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@dataclass
class Short:
    call: TorchCall
    fake: FakeApi
    fallen: list[tuple[Sequence[Any], Any]]


@pytest.fixture(params=[(1, False), (1, True), (4, False), (4, True)], ids=str)
def short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Short]:
    length, in_place = request.param
    yield from opened(affine_chain(length, in_place=in_place, rows=ROWS), monkeypatch)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Iterator[Short]:
    """A function of four tensors with three results."""
    yield from opened(many_tensors(4, 3, ROWS), monkeypatch)


def opened(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> Iterator[Short]:
    fake = FakeApi()
    monkeypatch.setattr(driver, "load_api", lambda: fake)
    fallen: list[tuple[Sequence[Any], Any]] = []
    with load(artifact, devices="cuda:0") as session:
        bound: Any = session._bound
        instance: PlacedInstance = bound.instance(session.signature, {})
        direct = _direct(instance, bound.opened[0].device)
        assert direct is not None

        def fallback(arguments: Sequence[Any], stream: Any) -> str:
            fallen.append((arguments, stream))
            return "fallen"

        library = Torch(CpuTorch())  # pyright: ignore[reportArgumentType]
        call = torch_call(library, direct, session.signature, instance, NOWHERE, fallback)
        assert call is not None
        yield Short(call, fake, fallen)
        fake.stream_synchronize(0)


@pytest.fixture
def length(short: Short, request: pytest.FixtureRequest) -> int:
    return request.node.callspec.params["short"][0]


@pytest.fixture
def in_place(short: Short, request: pytest.FixtureRequest) -> bool:
    return request.node.callspec.params["short"][1]


def vector(seed: int) -> Any:
    memory = torch.zeros(ROWS + 16, dtype=torch.int32)
    begin = -(memory.data_ptr() // 4) % 16
    aligned = memory[begin : begin + ROWS]
    aligned[...] = torch.from_numpy(np.random.default_rng(seed).integers(-99, 99, ROWS, np.int32))
    return aligned


def test_results_are_right_for_old_and_new_addresses(short: Short, length: int, in_place: bool):
    tensors = [vector(seed) for seed in range(12)]
    kept: list[Any] = []
    for turn in (0, 0, 0, 1, 0, 1, *range(12), *range(12)):
        y = vector(100)
        result = short.call.short(tensors[turn], y) if in_place else short.call.short(tensors[turn])
        assert not in_place or result is y
        kept.append(result)
        short.fake.stream_synchronize(0)
        np.testing.assert_array_equal(result.numpy(), expected_chain(tensors[turn].numpy(), length))
    assert not short.fallen


def test_out_is_written(short: Short, length: int, in_place: bool):
    if in_place:
        pytest.skip("its results are arguments")
    x, y = vector(0), vector(1)
    for _ in range(3):
        y.zero_()
        assert short.call.short(x, y) is y
        short.fake.stream_synchronize(0)
        np.testing.assert_array_equal(y.numpy(), expected_chain(x.numpy(), length))
    assert short.call.short(x, x) == "fallen"


def test_what_is_different_goes_the_long_way(short: Short, in_place: bool):
    x, y = vector(0), vector(1)
    long = vector(2).repeat(3)
    others = [
        x.to(torch.float32), long[: ROWS + 1], long[: 2 * ROWS : 2], x.reshape(2, 4), x.numpy(), None, 3,
        torch.nn.Parameter(x, requires_grad=False), long[1 : ROWS + 1],
    ]
    for number, other in enumerate(others):
        given = (other, y) if in_place else (other,)
        assert short.call.short(*given) == "fallen", number
        assert short.fallen[-1] == (given, None)
    assert short.call.short() == short.call.short(x, y, y, y) == "fallen"
    if in_place:
        assert short.call.short(y, y) == "fallen"


def test_out_for_several_results_is_written(many: Short):
    x, y = ([vector(10 * turn + number) for turn in range(count)] for number, count in enumerate((4, 3)))
    for _ in range(4):
        for tensor in y:
            tensor.zero_()
        results = many.call.short(*x, *y)
        assert all(result is tensor for result, tensor in zip(results, y, strict=True))
        many.fake.stream_synchronize(0)
        for index in range(3):
            np.testing.assert_array_equal(y[index].numpy(), 2 * x[index].numpy() + index)
    assert not many.fallen
    for wrong in ((*y[:2], y[0]), (*y[:2], x[3]), (*y[:2], None), y[:2], (*y[:2], y[2].to(torch.float32))):
        assert many.call.short(*x, *wrong) == "fallen"


def test_arguments_by_name_go_the_long_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(driver, "load_api", FakeApi)
    x, y = vector(0), vector(1)
    with load(affine_chain(1, rows=ROWS), devices="cuda:0") as session:
        function: Any = session["main"]
        fallback = function._callee().fallback
        for given in (({"x": x},), ({"x": x}, y)):
            result = fallback(given, None)
            np.testing.assert_array_equal(result.numpy(), expected_chain(x.numpy(), 1))


def changed_dtype(x: Any) -> None:
    x.data = x.data.view(torch.float32)


def changed_strides(x: Any) -> None:
    x.set_(x.untyped_storage(), x.storage_offset(), (ROWS,), (2,))


CHANGES = (
    changed_dtype, changed_strides, lambda x: x.resize_(ROWS - 1), lambda x: x.unsqueeze_(0),
    lambda x: x.set_(x.untyped_storage(), x.storage_offset() + 1, (ROWS,), (1,)),
)


@pytest.mark.parametrize("change", CHANGES)
def test_tensors_that_have_changed_are_looked_at_again(many: Short, change: Any):
    x, y = ([vector(seed) for seed in range(count)] for count in (4, 3))
    for _ in range(3):
        many.call.short(*x, *y)
    many.fake.stream_synchronize(0)
    assert not many.fallen
    change(x[2])
    assert many.call.short(*x, *y) == "fallen"
    x[2] = vector(7)
    assert many.call.short(*x, *y) == tuple(y)
    many.fake.stream_synchronize(0)


def test_calls_keep_no_tensor(many: Short):
    tensors = [vector(seed) for seed in range(7)]
    for _ in range(3):
        many.call.short(*tensors)
        with torch.inference_mode():
            many.call.short(*tensors)
    many.fake.stream_synchronize(0)
    assert not many.fallen
    kept = [weakref.ref(tensor) for tensor in tensors]
    tensors.clear()
    assert all(tensor() is None for tensor in kept)


def test_a_stream_that_is_captured_gets_launches(short: Short, length: int, in_place: bool):
    x, y = vector(0), vector(1)
    stream = short.fake.stream_create()
    for _ in range(3):
        short.call.on_stream((x, y), stream)
    graphs, launches = short.fake.calls["executable_launch"], short.fake.calls["launch"]
    short.fake.capturing.add(stream)
    short.call.on_stream((x, y), stream)
    short.fake.stream_synchronize(stream)
    assert short.fake.calls["executable_launch"] == graphs and short.fake.calls["launch"] == launches + length
    np.testing.assert_array_equal(y.numpy(), expected_chain(x.numpy(), length))
    short.fake.capturing.clear()
    short.fake.stream_destroy(stream)


def test_other_streams(short: Short, length: int, in_place: bool):
    stream = short.fake.stream_create()
    x, y = vector(0), vector(1)
    release = short.fake.hold(0)  # which nobody waits for
    for given in (stream, CpuTorch.cuda.Stream(stream)) * 3:
        y.zero_()
        assert short.call.on_stream((x, y), given) is y
        short.fake.stream_synchronize(stream)
        np.testing.assert_array_equal(y.numpy(), expected_chain(x.numpy(), length))
    assert not short.fallen
    for strange in (12345, "mine", None):
        assert short.call.on_stream((x, y), strange) == "fallen"
        assert short.fallen[-1][1] == strange
    if not in_place:
        assert short.call.on_stream((x,), stream) == "fallen"  # whose memory the result is, the long way knows
    release()
    short.fake.stream_destroy(stream)
