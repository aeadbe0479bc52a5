"""Kernels with several forms, timed on a device whose clock is a model, and the artifact with what was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motet.artifact.candidates import INDEX, Chosen, FormCandidate, Tunable, encode_index, pruned, read_index
from motet.artifact.reader import Artifact
from motet.artifact.schema import (
    SCHEMA_VERSION,
    Command,
    Manifest,
    Schedule,
    ScheduleBuffer,
    Signature,
    Symbol,
    TensorSpec,
    Variant,
)
from motet.artifact.tunings import Tuning, Tunings, parse_tunings, read_tunings
from motet.artifact.writer import write_artifact
from motet.errors import DeviceError, OptionError
from motet.runtime.device import DeviceInfo, Work
from motet.runtime.timeline import HostTimeline, Point
from motet.runtime.tuning import fastest, tunable_variant, tune_kernels

pytestmark = pytest.mark.usefixtures("all_levels")

FAMILY, TARGET = "model", "m1"


@dataclass
class Memory:
    content: np.ndarray[Any, Any]

    @property
    def bytes(self) -> int:
        return self.content.nbytes

    @property
    def address(self) -> int:
        return self.content.ctypes.data


@dataclass
class Code:
    kernels: Sequence[str]


@dataclass
class Recorded:
    work: Sequence[Work]
    externals: int


@dataclass
class ModelDevice:
    """Adds one to what it reads. A launch takes what `seconds` says of its kernel, and 10 µs a submission; kernels in
    `wrong` add two, those in `refused` cannot be loaded."""

    seconds: Mapping[str, float]
    wrong: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    now: float = 0.0
    grids: dict[str, int] = field(default_factory=dict)
    info = DeviceInfo("a model", "model:0", family=FAMILY)
    queues = 1

    def clock(self) -> float:
        return self.now

    def obstacle(self, variant: Variant) -> str | None:
        return None if variant.target == TARGET else "it is of another target"

    def allocate(self, size: int) -> Memory:
        return Memory(np.zeros(size, np.uint8))

    def write(self, target: Memory, source: np.ndarray[Any, Any], offset: int = 0) -> Point:
        target.content[offset : offset + source.nbytes] = source.view(np.uint8)
        return self._done()

    def read(self, source: Memory, target: np.ndarray[Any, Any]) -> Point:
        target[...] = source.content
        return self._done()

    def load(self, objects: Sequence[bytes], names: Sequence[str]) -> Code:
        stem = Path(names[0]).stem
        if stem in self.refused:
            raise DeviceError(f"device model:0: load: {names[0]}: no")
        return Code([stem])

    def record(self, executable: Code, work: Sequence[Work], externals: int, scratch: int) -> Recorded:
        assert {item.kernel for item in work} <= set(executable.kernels)
        return Recorded(work, externals)

    def submit(self, work: Recorded, buffers: Sequence[Memory]) -> Point:
        assert len(buffers) == work.externals
        self.now += 10e-6
        for item in work.work:
            self.now += self.seconds[item.kernel]
            self.grids[item.kernel] = item.tasks
            source, target = (buffers[reference.external] for reference in item.references)
            amount = 2.0 if item.kernel in self.wrong else 1.0
            target.content.view(np.float32)[...] = source.content.view(np.float32) + np.float32(amount)
        return self._done()

    def _done(self) -> Point:
        timeline = HostTimeline()
        point = timeline.next()
        timeline.signal(point.value)
        return point


def artifact(forms: int = 3, dynamic: bool = False) -> Artifact:
    """One function of one kernel `k`, which has `forms` forms."""
    names = ["k", *(f"k.{number}" for number in range(1, forms))]
    members: dict[str, bytes] = {}
    candidates: list[FormCandidate] = []
    extent: Any = "n" if dynamic else 64
    own_extent: Any = "rows" if dynamic else 64  # as the kernel calls it
    symbols = ["rows"] if dynamic else []
    for number, name in enumerate(names):
        own = {f"{name}.bin": f"code {number}".encode(), f"{name}.json": b'{"kernel": "%s", "warps": %d}' % (
            name.encode(), number)}
        members |= own
        candidates.append(FormCandidate(f"form {number}", name, ["ceildiv", own_extent, 2 + number], list(own)))
    members[INDEX] = encode_index([Tunable(FAMILY, TARGET, "k", "key", "an addition", candidates, symbols)])
    size: Any = ["*", extent, 4]
    sizes: list[Any] = ["n"] if dynamic else []
    command = Command("dispatch", [0, 1], "k", ["ceildiv", extent, 2], sizes, reads=1)
    schedule = Schedule([ScheduleBuffer("input", size), ScheduleBuffer("result", size)], [command])
    signature = Signature(
        "main", [TensorSpec("x", [extent], "f32")], [TensorSpec("y", [extent], "f32")],
        [Symbol("n", 0, 0)] if dynamic else [],
    )
    manifest = Manifest(
        SCHEMA_VERSION, "motet", [signature],
        [Variant(FAMILY, TARGET, "", [TARGET], ["k.bin", "k.json"], {"main": schedule})], [], {},
    )
    return write_artifact(manifest, members, {})


def tune(of: Artifact, device: ModelDevice, symbols: Mapping[str, Mapping[str, int]] | None = None):
    given = {"main": {}} if symbols is None else symbols
    return tune_kernels(of, device, given, lambda what, part: None, device.clock)  # type: ignore[arg-type]


def test_the_fastest_form_is_taken_and_its_time_told() -> None:
    device = ModelDevice({"k": 5e-6, "k.1": 3e-6, "k.2": 4e-6})
    (verdict,) = tune(artifact(), device)
    assert verdict.taken == 1
    # A submission's own 10 µs are spread over the launches of a sample.
    assert [round(1e6 * (seconds or 0)) for seconds in verdict.seconds] == [5, 3, 4]
    assert verdict.tuning.form == "form 1" and verdict.tuning.target == "model:m1"
    assert device.grids == {"k": 32, "k.1": 22, "k.2": 16}


def test_a_form_that_computes_something_else_is_not_taken() -> None:
    (verdict,) = tune(artifact(), ModelDevice({"k": 5e-6, "k.1": 1e-6, "k.2": 4e-6}, wrong=frozenset({"k.1"})))
    assert verdict.taken == 2 and verdict.seconds[1] is None


def test_a_form_that_cannot_be_loaded_is_not_taken() -> None:
    (verdict,) = tune(artifact(), ModelDevice({"k": 5e-6, "k.2": 6e-6}, refused=frozenset({"k.1"})))
    assert verdict.taken == 0 and verdict.seconds[1] is None
    assert set(verdict.tuning.microseconds) == {"form 0", "form 2"}


def test_kernels_of_unknown_extents_are_skipped_and_others_measured_with_those_given() -> None:
    device = ModelDevice({"k": 2e-6, "k.1": 1e-6})
    (skipped,) = tune(artifact(2, dynamic=True), device, {})
    assert skipped.skipped and skipped.taken == 0 and not device.grids
    (measured,) = tune(artifact(2, dynamic=True), device, {"main": {"n": 30}})
    assert not measured.skipped and measured.taken == 1 and device.grids == {"k": 15, "k.1": 10}


@pytest.mark.parametrize(("seconds", "wanted"), [
    ((1.0, 0.995), 0), ((1.0, 0.9), 1), ((None, 2.0, 1.0), 2), ((None, None), 0), ((1.0,), 0),
])
def test_the_first_form_stays_unless_another_is_faster_beyond_noise(
    seconds: tuple[float | None, ...], wanted: int
) -> None:
    assert fastest(seconds) == wanted


def test_a_pruned_artifact_has_the_winner_in_the_place_of_the_first() -> None:
    made = artifact()
    pruned_artifact = write_artifact(*pruned(made, {(FAMILY, TARGET, "k"): Chosen(2)}))
    assert sorted(pruned_artifact.manifest.members) == ["k.bin", "k.json"]
    assert bytes(pruned_artifact.member("k.bin")) == b"code 2"
    assert b'"kernel": "k"' in bytes(pruned_artifact.member("k.json"))
    assert b'"warps": 2' in bytes(pruned_artifact.member("k.json"))
    (command,) = pruned_artifact.manifest.variants[0].schedules["main"].commands
    assert command.tasks == 16 and command.kernel == "k"
    assert read_index(pruned_artifact) == [] and len(read_index(made)) == 1


def test_grids_of_a_pruned_artifact_are_over_what_the_function_is_given() -> None:
    made = write_artifact(*pruned(artifact(3, dynamic=True), {(FAMILY, TARGET, "k"): Chosen(1)}))
    (command,) = made.manifest.variants[0].schedules["main"].commands
    assert command.tasks == ["ceildiv", "n", 3]


def test_an_artifact_without_code_for_the_device_is_one_error() -> None:
    device = ModelDevice({})
    made = artifact()
    device.info = DeviceInfo("another", "other:0", family="other")
    with pytest.raises(DeviceError, match=r"device other:0: runs none of the code of .*it has none for other devices"):
        tunable_variant(made, device)  # type: ignore[arg-type]


def test_tunings_are_kept_by_kernel_target_and_device(tmp_path: Path) -> None:
    first = Tuning("a", "cuda:sm_90a", "H100", "x", "matmul", {"x": 1.5, "y": 2.0})
    other = Tuning("b", "cuda:sm_90a", "H100", "z")
    path = tmp_path / "tunings.json"
    Tunings().merged([first, other]).write(path)
    again = read_tunings(path)
    assert list(again.kernels) == [first, other]
    fresh = again.merged([Tuning("a", "cuda:sm_90a", "H100", "y"), Tuning("a", "cuda:sm_90a", "H200", "x")])
    found = [fresh.find(kernel, "cuda:sm_90a") for kernel in "ab"]
    assert [each.form for each in found if each is not None] == ["y", "z"]
    assert fresh.find("a", "cuda:sm_80") is None and len(fresh.kernels) == 3


@pytest.mark.parametrize(("text", "words"), [
    ("{", "no tunings"), ('{"kernels": []}', "no tunings"), ('{"motet_tunings": 9, "kernels": []}', "version 9"),
    ('{"motet_tunings": 1, "kernels": [{"kernel": 1}]}', "no tunings"),
])
def test_a_file_that_holds_no_tunings_is_one_error(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_tunings(text, "t.json")


def test_a_file_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read: no such file"):
        read_tunings(tmp_path / "none.json")
