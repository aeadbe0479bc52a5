"""Programs on two GPUs of one process: values go from one to the other without the host."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.fake import FakeApi
from tests.unit.runtime.drivers.cuda.handmade import affine_chain, two_gpus
from tests.unit.runtime.drivers.cuda.test_cuda_calls import Tensor

from motet.errors import CallError
from motet.runtime import load
from motet.runtime.device_array import DeviceArray
from motet.runtime.drivers.cuda import driver


def numbers(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-999, 999, count, np.int32)


@pytest.mark.parametrize("peers", [True, False])
@pytest.mark.parametrize("result", [0, 1])
def test_values_are_copied_from_gpu_to_gpu(monkeypatch: pytest.MonkeyPatch, peers: bool, result: int):
    fake = FakeApi(gpus=2, peers=peers)
    monkeypatch.setattr(driver, "load_api", lambda: fake)
    rows = 1 << 20  # too much for the slots of small transfers
    with load(two_gpus(rows, result)) as session:
        for seed in range(3):
            x = numbers(rows, seed)
            downloads = fake.calls["download"]
            np.testing.assert_array_equal(session(x), 4 * x + 1)
            moved = fake.calls["download"] - downloads
            assert moved <= 2 * 2  # the result in chunks; nothing else came to the host
        assert fake.calls["copy_peer"] == 3 * (1 if result else 2)
        there = {("context 1", "context 0")} if result else {("context 0", "context 1"), ("context 1", "context 0")}
        assert fake.reached == (there if peers else set())
        assert all(bool(pool.open_to) == (peers and (pool.ordinal == 0 or not result)) for pool in fake.pools)


def test_sessions_of_several_gpus_take_tensors(monkeypatch: pytest.MonkeyPatch):
    fake = FakeApi(gpus=2)
    monkeypatch.setattr(driver, "load_api", lambda: fake)
    with load(two_gpus(7)) as session:
        stream = fake.stream_create()
        x = Tensor(np.zeros(7, np.int32))
        fake.foreign.append((x.array.ctypes.data, x.array.nbytes, 0))
        values = numbers(7)
        release = fake.hold(stream)
        fake.upload(x.array.ctypes.data, values.ctypes.data, values.nbytes, stream)
        release()
        y = session(x, stream=stream)
        assert type(y) is DeviceArray and y.device.info.uri == "cuda:1"
        np.testing.assert_array_equal(y.numpy(), 4 * values + 1)
        fake.stream_destroy(stream)


def test_calls_on_one_of_two_gpus_make_its_context_current(monkeypatch: pytest.MonkeyPatch):
    fake = FakeApi(gpus=2)
    monkeypatch.setattr(driver, "load_api", lambda: fake)
    launch = FakeApi.launch

    def strict(self: FakeApi, *arguments: object) -> None:
        assert self._stack() == ["context 1"]
        launch(self, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(FakeApi, "launch", strict)
    x = session_input = numbers(9)
    with load(affine_chain(1, rows=9), devices="cuda:1") as session:
        there = session.put(session_input)
        np.testing.assert_array_equal(session(there, stream=0).numpy(), 2 * x)
        other = fake.stream_create()
        with pytest.raises(CallError, match="is not one of cuda:1; expected one of the GPU on which the arguments"):
            session(there, stream=other)
        with pytest.raises(CallError, match=r"lies on cuda:0; this session works on cuda:1; copy it there"):
            session(Tensor(x))
        fake.stream_destroy(other)
