"""The conformance suite: the devices of Motet itself keep to the contract, and a device that does not is found out."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from motet.errors import DeviceError
from motet.runtime import device
from motet.runtime.conformance import AREAS, all_checks, run_checks, select
from motet.runtime.conformance import __main__ as command
from motet.runtime.device import API_VERSION, DeviceInfo, open_device
from motet.runtime.timeline import HostTimeline, Point

URIS = ("host", "null", "null?view=1&queues=1&threads=2")
MORE_URIS = ("null/1?pace=1&queues=4&latency=1e-5", "host?threads=3", "host/2")


@pytest.mark.parametrize("uri", [*URIS, *(pytest.param(uri, marks=pytest.mark.slow) for uri in MORE_URIS)])
def test_devices_of_motet_keep_to_the_contract(uri: str):
    outcomes = list(run_checks(uri))
    assert [f"{o.check.name}: {o.reason}" for o in outcomes if o.verdict == "fail"] == []
    assert sum(o.verdict == "pass" for o in outcomes) > len(outcomes) * 3 // 4
    assert all(o.reason for o in outcomes if o.verdict == "skip")


def test_every_check_has_a_name_of_its_own_and_says_what_it_is_about():
    checks = all_checks()
    assert len({check.name for check in checks}) == len(checks)
    assert all(check.summary.endswith(".") and "\n" not in check.summary for check in checks)


def test_a_check_is_selected_by_its_area_its_group_and_its_name():
    [case] = select(["copy-of-63"])
    assert case.tags == ("memory", "copy-of", "copy-of-63") and case.id == "memory-copy-of-63" and case.is_case
    assert "A copy of 63 bytes" in case.summary
    group, area = ({check.id for check in select([word])} for word in ("copy-of", "memory"))
    assert case.id in group < area and all(each.startswith("memory-copy-of-") for each in group)
    assert {check.id for check in select(["memory", "copy-of"])} == area
    [alone] = select(["fill"])
    assert alone.tags == ("memory", "fill", "fill") and not alone.is_case


def test_every_area_is_explained_in_the_documentation():
    text = (Path(__file__).parents[3] / "docs" / "devices.md").read_text()
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.strip("`") in AREAS] == [f"`{area}`" for area in AREAS]


# -- devices that break the contract -----------------------------------------------------------------


class Wrapper:
    """A null device with something wrong; what is not wrong is the null device's."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.inner = open_device(DeviceInfo("inner", "null", family="null"))

    def __getattr__(self, name: str):
        return getattr(self.inner, name)


class FillsTooLittle(Wrapper):
    def fill(self, target, byte, waits=(), queue=0):
        point = self.inner.fill(target, byte, waits, queue)
        point.wait()
        if target.bytes > 64:
            self.inner.write(target, np.zeros(1, np.uint8), target.bytes - 1).wait()
        return point


class IgnoresOffset(Wrapper):
    def read(self, source, target, offset=0, waits=(), queue=0):
        return self.inner.read(source, target, min(offset, 0), waits, queue)


class IgnoresWaits(Wrapper):
    def copy(self, source, target, waits=(), queue=0):
        return self.inner.copy(source, target, (), queue)

    def fill(self, target, byte, waits=(), queue=0):
        return self.inner.fill(target, byte, (), queue)


class WaitsForever(Wrapper):
    def abort(self):
        threading.Event().wait()


class ForgetsErrors(Wrapper):
    """What waited for a poisoned point is said to have ended well."""

    def fill(self, target, byte, waits=(), queue=0):
        inner = self.inner.fill(target, byte, waits, queue)
        timeline = HostTimeline()
        point = timeline.next()

        def watch() -> None:
            while not inner.reached:
                threading.Event().wait(1e-3)
            timeline.signal(point.value)

        threading.Thread(target=watch, daemon=True).start()
        return Point(timeline, point.value)


class RaisesBareErrors(Wrapper):
    def allocate(self, size):
        if size < 0 or size > 1 << 40:
            raise ValueError("size")
        return self.inner.allocate(size)


class SurvivesClose(Wrapper):
    def close(self):
        pass


class LeaksThreads(Wrapper):
    def close(self):
        self.inner.close()
        threading.Thread(target=threading.Event().wait, daemon=True).start()


class Misaligns(Wrapper):
    def allocate(self, size):
        buffer = self.inner.allocate(size)
        buffer.address += 8
        return buffer


class NumbersQueuesFromOne(Wrapper):
    def profile(self, on):
        return [replace(event, queue=event.queue + 1) for event in self.inner.profile(on)]


class RunsTwice(Wrapper):
    def submit(self, work, buffers, waits=(), queue=0):
        first = self.inner.submit(work, buffers, waits, queue)
        return self.inner.submit(work, buffers, [*waits, first], queue)


class RunsBackwards(Wrapper):
    def record(self, executable, work, externals, scratch):
        free = [replace(item, after=()) for item in reversed(work)]
        return self.inner.record(executable, free, externals, scratch)


class WaitsWhenFull(Wrapper):
    """No more than 100 fills at a time: the next waits for the first of them."""

    def fill(self, target, byte, waits=(), queue=0):
        points = self.__dict__.setdefault("points", [])
        if len(points) >= 100 and not points[-100].wait(1):
            raise DeviceError("device null: full")
        points.append(self.inner.fill(target, byte, waits, queue))
        return points[-1]


class AcceptsAnyOption(Wrapper):
    pass


class WritesWords(Wrapper):
    """Writes begin at whole words."""

    def write(self, target, source, offset=0, waits=(), queue=0):
        return self.inner.write(target, source, offset & ~3, waits, queue)


class CopiesVectors(Wrapper):
    """Bytes after the last 16 are left behind."""

    def copy(self, source, target, waits=(), queue=0):
        rest = np.empty(source.bytes % 16, np.uint8)
        if target.bytes >= source.bytes and rest.size:
            self.inner.read(target, rest, source.bytes - rest.size).wait()
        point = self.inner.copy(source, target, waits, queue)
        if rest.size:
            self.inner.write(target, rest, source.bytes - rest.size, [point]).wait()
        return point


class AcceptsAnyQueue(Wrapper):
    def fill(self, target, byte, waits=(), queue=0):
        return self.inner.fill(target, byte, waits, queue % self.inner.queues)


class WaitsForTheFirst(Wrapper):
    def write(self, target, source, offset=0, waits=(), queue=0):
        return self.inner.write(target, source, offset, waits[:1], queue)


class ReadsEarly(Wrapper):
    def read(self, source, target, offset=0, waits=(), queue=0):
        return self.inner.read(source, target, offset, (), queue)


class HidesClasses(Wrapper):
    """Every failure is reported as a DeviceError with the text."""

    def fill(self, target, byte, waits=(), queue=0):
        inner, timeline = self.inner.fill(target, byte, waits, queue), HostTimeline()
        point = timeline.next()

        def watch() -> None:
            while not inner.reached:
                threading.Event().wait(1e-3)
            if inner.error is not None:
                timeline.fail(point.value, DeviceError(str(inner.error)))
            else:
                timeline.signal(point.value)

        threading.Thread(target=watch, daemon=True).start()
        return point


class RecordsOtherwise(Wrapper):
    """What `change` makes of each command is recorded."""

    def change(self, item):
        raise NotImplementedError

    def record(self, executable, work, externals, scratch):
        return self.inner.record(executable, [self.change(item) for item in work], externals, scratch)


class RoundsTasks(RecordsOtherwise):
    def change(self, item):
        return replace(item, tasks=item.tasks & ~1) if item.tasks > 32 else item


class NarrowsSizes(RecordsOtherwise):
    def change(self, item):
        return replace(item, sizes=tuple((size + (1 << 31)) % (1 << 32) - (1 << 31) for size in item.sizes))


class AlignsReferences(RecordsOtherwise):
    def change(self, item):
        return replace(item, references=tuple(replace(each, offset=each.offset & ~63) for each in item.references))


class AbortsNothing(Wrapper):
    def abort(self):
        pass


class GivesEventsAgain(Wrapper):
    def profile(self, on):
        self.events = [*getattr(self, "events", []), *self.inner.profile(on)]
        return list(self.events)


class KeepsBuffers(Wrapper):
    """Memory is never freed; there is room for 64 MB."""

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(replace(info, memory=1 << 26))
        self.inner = open_device(DeviceInfo("inner", f"null?memory={1 << 26}", family="null"))
        self.kept: list[object] = []

    def allocate(self, size):
        self.kept.append(self.inner.allocate(size))
        return self.kept[-1]


BROKEN = {
    FillsTooLittle: ("fill", "65 bytes filled with 90: 1 of 65 elements differ; [64] is 0"),
    IgnoresOffset: ("write-and-read", "elements differ"),
    IgnoresWaits: ("wait-times-out", "did not give False"),
    WaitsForever: ("abort-idle", "it did not end within"),
    ForgetsErrors: ("failure-of-the-past", "success; expected DeviceError"),
    RaisesBareErrors: ("allocate-too-much", "ValueError: size; expected OutOfMemoryError"),
    SurvivesClose: ("closed-use", "allocate on a closed device: no error; expected DeviceError"),
    LeaksThreads: ("nothing-left", "threads; before"),
    Misaligns: ("allocate-sizes", "expected a multiple of 64"),
    NumbersQueuesFromOne: ("profile-of-transfers", "expected [("),
    RunsTwice: ("tasks-run-once", "[0] is 2; expected 1"),
    RunsBackwards: ("random-work", "memory after 120 commands"),
    WaitsWhenFull: ("deep-queues", "full"),
    AcceptsAnyOption: ("unknown-option", "no error; expected DeviceError"),
    WritesWords: ("write-at-9", "the buffer after a write at 1"),
    CopiesVectors: ("copy-of-63", "elements differ; [48]"),
    AcceptsAnyQueue: ("queue-refused-fill", "queue -1: no error"),
    WaitsForTheFirst: ("gates-open-012", "it ran before the last of its points was reached"),
    ReadsEarly: ("wait-of-read", "read that waits: its point is reached"),
    HidesClasses: ("error-class-KernelFault", "expected KernelFault"),
    RoundsTasks: ("tasks-run-65", "[64] is 0; expected 1"),
    NarrowsSizes: ("sizes-of-bits-33", "elements differ"),
    AlignsReferences: ("at-offset-68", "elements differ"),
    AbortsNothing: ("abort-queued-kind-read", "it did not end within"),
    GivesEventsAgain: ("profile-of-copy", "2 events of one copy"),
    KeepsBuffers: ("exhausted-and-freed", "time 2: 0 buffers"),
}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A driver of the family `null`, whose code its devices take; `open` is for the test to set."""
    module = types.ModuleType("motet_test_driver")
    module.api = API_VERSION
    module.probe = lambda: [DeviceInfo("a device with a defect", "null", family="null", memory=1 << 33)]
    monkeypatch.setitem(sys.modules, "motet_test_driver", module)
    found = {"null": metadata.EntryPoint("null", "motet_test_driver", device.GROUP)}
    real = device.load_driver("null")
    monkeypatch.setattr(device, "_entries", lambda: found)
    monkeypatch.setitem(device.BUILT_IN, "null", "motet_test_driver")
    original = device.open_device

    def open_inner(info: DeviceInfo):
        return real.open(info) if info.name == "inner" else original(info)

    monkeypatch.setattr(sys.modules[__name__], "open_device", open_inner)
    yield module


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_device_that_breaks_the_contract_is_found_out(broken: type[Wrapper], driver: types.ModuleType):
    name, reason = BROKEN[broken]
    driver.open = broken
    [outcome] = run_checks("null", [name], limit=1 if broken in (WaitsForever, AbortsNothing) else 10)
    assert outcome.verdict == "fail" and reason in outcome.reason


def test_a_driver_may_be_exempt_from_a_check_and_says_why(driver: types.ModuleType):
    driver.open = FillsTooLittle
    driver.conformance_exempt = {"fill": "it has no fill"}
    [outcome] = run_checks("null", ["fill"])
    assert outcome.verdict == "skip" and outcome.reason == "exempt: it has no fill"


def test_an_exemption_from_no_check_is_an_error(driver: types.ModuleType):
    driver.open = FillsTooLittle
    driver.conformance_exempt = {"fil": "?"}
    with pytest.raises(DeviceError, match="exempt from 'fil', which is no check"):
        list(run_checks("null", ["fill"]))


def test_a_device_without_code_is_checked_for_all_that_needs_none(driver: types.ModuleType, monkeypatch):
    class TakesNoCode(Wrapper):
        def obstacle(self, variant):
            return "it runs no code of this machine"

    driver.open = TakesNoCode
    by_name = {outcome.check.name: outcome for outcome in run_checks("null", ["memory", "code"])}
    assert by_name["write-and-read"].verdict == "pass"
    assert by_name["sizes-arrive"].verdict == "skip"
    assert "it runs no code of this machine" in by_name["sizes-arrive"].reason


def test_without_the_compiler_what_needs_code_is_skipped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "motet.compiler.machine_code", None)
    by_name = {outcome.check.name: outcome for outcome in run_checks("null", ["life", "commands", "program"])}
    assert all(outcome.verdict != "fail" for outcome in by_name.values())
    for name in ("chain", "whole-program", "with-the-host"):
        assert by_name[name].verdict == "skip" and "compiler is not installed" in by_name[name].reason
    assert by_name["nothing-left"].verdict == "pass"


def test_the_suite_is_imported_without_the_compiler():
    code = (
        "import sys, motet.runtime.conformance.__main__\n"
        "print([name for name in sys.modules if name.startswith(('motet.compiler', 'llvmlite', 'torch_mlir'))])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240, env=environment
    )
    assert found.stdout.strip() == "[]"


# -- the command -------------------------------------------------------------------------------------


def test_the_command_says_a_line_for_each_check_and_a_summary(capsys: pytest.CaptureFixture[str]):
    checks = ("profile-is-off", "profile-of-transfers", "profile-of-launches", "adopt")
    assert command.main(["null", *(word for check in checks for word in ("--only", check))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert any(line.startswith("memory: adopt ") and "skip it adopts no arrays" in line for line in lines)
    assert lines[-1] == "null: 3 passed, 0 failed, 1 skipped"


def test_the_command_fails_with_what_failed(driver: types.ModuleType, capsys: pytest.CaptureFixture[str]):
    driver.open = FillsTooLittle
    assert command.main(["null", "--only", "fill", "--only", "copy", "--one-process"]) == 1
    output = capsys.readouterr().out
    assert "FAIL 65 bytes filled with 90" in output and "null: 1 passed, 1 failed, 0 skipped" in output


def test_the_command_lists_every_check_with_its_sentence(capsys: pytest.CaptureFixture[str]):
    assert command.main(["--list"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for check in all_checks():
        assert f" {check.name} {check.summary}" in output


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["no-such-device"], 1, "error: device no-such-device: it is not present; present: host"),
        (["null?speed=1"], 1, "error: device 'null?speed=1': no option 'speed'"),
        (["host", "--only", "nothing"], 1, "error: conformance: no area or check 'nothing'; areas: life, "),
        ([], 2, "which device? here are: host"),
    ],
)
def test_the_command_helps_on(arguments: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]):
    try:
        found = command.main(arguments)
    except SystemExit as end:
        found = end.code
    assert found == status and text in capsys.readouterr().err
