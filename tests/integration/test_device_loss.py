"""A device that is lost during a run: another takes its place where the program names one, else the call fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.integration.placed import build_placed

from motet.errors import DeviceError, DeviceLost
from motet.runtime import load
from motet.runtime.device import Device, DeviceInfo

TEXT = """
func.func @main(%x: tensor<5x7xf32> {motet.affinity = "cpu"}, %y: tensor<5x7xf32>)
    -> (tensor<5x7xf32> {motet.affinity = "cpu"}, tensor<5x7xf32>) {
  %0 = arith.mulf %x, %y {motet.affinity = "gpu"} : tensor<5x7xf32>
  %1 = arith.addf %0, %x {motet.affinity = "cpu"} : tensor<5x7xf32>
  %2 = arith.subf %1, %y {motet.affinity = "gpu"} : tensor<5x7xf32>
  return %1, %2 : tensor<5x7xf32>, tensor<5x7xf32>
}
"""
LOST_LATER = "null[3],null[2],@cpu"


def inputs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.standard_normal((5, 7), np.float32), random.standard_normal((5, 7), np.float32)


def check(results: tuple[np.ndarray, np.ndarray], x: np.ndarray, y: np.ndarray) -> None:
    np.testing.assert_allclose(results[0], x * y + x, rtol=1e-6)
    np.testing.assert_allclose(results[1], x * y + x - y, rtol=1e-5, atol=1e-6)


def test_without_an_alternative_the_call_fails_and_the_process_lives() -> None:
    artifact = build_placed(TEXT, ("cpu=host", "gpu=null"))
    with load(artifact, devices={"gpu": "null?lose-after=6"}) as session:
        failed = 0
        for seed in range(12):
            x, y = inputs(seed)
            try:
                check(session(x, y), x, y)
            except DeviceLost as lost:
                failed += 1
                assert "null" in lost.device
        assert 0 < failed < 12
    x, y = inputs(1)
    check(load(artifact)(x, y), x, y)


def lose(session, monkeypatch: pytest.MonkeyPatch, uri: str, after: int) -> None:
    """Makes an open device fail as one does that is gone, from its `after`-th submission on."""
    bound = session._bound
    loaded = next(each for each in bound.opened if each.uri == uri)
    submit = loaded.device.submit
    count = 0

    def failing(*arguments, **named):
        nonlocal count
        count += 1
        if count > after:
            raise DeviceLost(uri, "unplugged")
        return submit(*arguments, **named)

    monkeypatch.setattr(loaded.device, "submit", failing)


def _refuse_to_open(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from motet.runtime import binding as bound

    opened = bound.open_device

    def refuse(info: DeviceInfo) -> Device:
        if info.uri == uri:
            raise DeviceError(f"device {uri}: busy")
        return opened(info)

    monkeypatch.setattr(bound, "open_device", refuse)


@pytest.mark.parametrize("after", range(4))
def test_the_next_alternative_takes_the_place_of_a_lost_device(
    after: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    artifact = build_placed(TEXT, ("cpu=host", f"gpu={LOST_LATER}"))
    with load(artifact) as session:
        assert [choice.info.uri for choice in session.devices] == ["host", "null/3"]
        lose(session, monkeypatch, "null/3", after)
        for seed in range(3):
            x, y = inputs(seed)
            check(session(x, y), x, y)
        assert [choice.info.uri for choice in session.devices] == ["host", "null/2"]
        assert any("@gpu" in note and "unplugged" in note and "null/2" in note for note in session.notes)
        assert "null/2" in caplog.text
        lose(session, monkeypatch, "null/2", 0)
        x, y = inputs(9)
        check(session(x, y), x, y)
        assert [choice.info.uri for choice in session.devices] == ["host", "host"]


@pytest.mark.parametrize(("bound", "then"), [
    ({"gpu": "null/3"}, ["host", "null/2"]),
    ({"gpu": "null/3?required=false"}, ["host", "null/2"]),
    ({"gpu": "null/2"}, ["host", "host"]),
    ({"gpu": "null/1"}, ["host", "null/3"]),
    ({"cpu": "host", "gpu": "null/3?latency=1e-5"}, ["host", "null/2"]),
], ids=str)
def test_an_alternative_takes_the_place_of_a_lost_device_that_the_caller_bound(
    bound: dict[str, str], then: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(build_placed(TEXT, ("cpu=host", f"gpu={LOST_LATER}")), devices=bound) as session:
        lost = session.devices[1].info.uri
        assert lost == bound["gpu"].removesuffix("?required=false")
        lose(session, monkeypatch, lost, 1)
        for seed in range(3):
            x, y = inputs(seed)
            check(session(x, y), x, y)
        assert [choice.info.uri for choice in session.devices] == then
        assert any("@gpu" in note and "unplugged" in note for note in session.notes)


def test_all_devices_of_a_program_may_be_lost_with_the_one_that_the_caller_bound(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(build_placed(TEXT, ("cpu=null[3],host", "gpu=null[3],@cpu")), devices="null/3") as session:
        assert [choice.info.uri for choice in session.devices] == ["null/3", "null/3"]
        lose(session, monkeypatch, "null/3", 0)
        x, y = inputs(4)
        check(session(x, y), x, y)
        assert [choice.info.uri for choice in session.devices] == ["host", "host"]


def test_a_required_device_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = build_placed(TEXT, ("cpu=host", f"gpu={LOST_LATER}"))
    with load(artifact, devices={"gpu": "null/3?latency=1e-5&required=true"}) as session:
        uri = "null/3?latency=1e-5"
        assert session.devices[1].info.uri == uri
        lose(session, monkeypatch, uri, 0)
        with pytest.raises(DeviceLost, match="unplugged"):
            session(*inputs(0))
    with pytest.raises(DeviceError, match="option required=maybe; expected true or false"):
        load(artifact, devices={"gpu": "null/3?required=maybe"})


def test_a_device_that_the_caller_bound_must_open(monkeypatch: pytest.MonkeyPatch) -> None:
    _refuse_to_open("null/3", monkeypatch)
    with pytest.raises(DeviceError, match="null/3: busy"):
        load(build_placed(TEXT, ("cpu=host", f"gpu={LOST_LATER}")), devices={"gpu": "null/3"})


def test_a_destination_is_written_once_whatever_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    func.func @main(%x: memref<4xf32>, %out: memref<4xf32>) {
      %0 = bufferization.to_tensor %x restrict : memref<4xf32>
      %1 = bufferization.to_tensor %out restrict : memref<4xf32>
      %2 = arith.mulf %0, %0 {motet.affinity = "gpu"} : tensor<4xf32>
      %3 = arith.addf %1, %2 {motet.affinity = "gpu"} : tensor<4xf32>
      bufferization.materialize_in_destination %3 in restrict writable %out : (tensor<4xf32>, memref<4xf32>) -> ()
      return
    }
    """
    with load(build_placed(text, ("cpu=host", f"gpu={LOST_LATER}"))) as session:
        lose(session, monkeypatch, "null/3", 0)
        x, out = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)
        session(x, out)
        np.testing.assert_array_equal(out, 10 + x * x)
        session(x, out)
        np.testing.assert_array_equal(out, 10 + 2 * x * x)


def test_callers_of_a_lost_device_are_all_served(monkeypatch: pytest.MonkeyPatch) -> None:
    with load(build_placed(TEXT, ("cpu=host", f"gpu={LOST_LATER}"))) as session:
        lose(session, monkeypatch, "null/3", 5)
        start = threading.Barrier(4)

        def caller(seed: int) -> None:
            start.wait()
            for number in range(10):
                x, y = inputs(10 * seed + number)
                check(session(x, y), x, y)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(caller, range(4)))
        assert [choice.info.uri for choice in session.devices] == ["host", "null/2"]


def test_a_device_that_cannot_be_opened_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    _refuse_to_open("null/3", monkeypatch)
    with load(build_placed(TEXT, ("cpu=host", f"gpu={LOST_LATER}"))) as session:
        assert [choice.info.uri for choice in session.devices] == ["host", "null/2"]
        assert any("busy" in note for note in session.notes)
        x, y = inputs(0)
        check(session(x, y), x, y)
    with pytest.raises(DeviceError, match="busy"):
        load(build_placed(TEXT, ("cpu=host", "gpu=null[3]")))
