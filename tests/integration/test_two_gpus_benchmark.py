"""The benchmark of two GPUs, as far as it goes without them: on the host, and on the driver that tests pretend."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import two_gpus
from tests.unit.runtime.drivers.cuda.fake import FakeApi

import motet
from motet.runtime.drivers.cuda import driver


class Still:
    """A copier that does nothing, for comparison."""

    def __init__(self) -> None:
        self.started: list[int] = []

    def start(self, source: int) -> None:
        self.started.append(source)

    def wait(self) -> None:
        pass


def test_motets_copies_arrive_and_are_compared(monkeypatch: pytest.MonkeyPatch):
    fake = FakeApi(gpus=2)
    monkeypatch.setattr(driver, "load_api", lambda: fake)
    devices = two_gpus.open_both()
    copier, other = two_gpus.MotetCopier(devices, 4096), Still()
    assert copier.is_right(0) and copier.is_right(1)
    before = fake.calls["copy_peer"]
    lines = list(two_gpus.compare_copies({"Motet": copier, "driver": other}, 4096, rounds=2))
    assert fake.calls["copy_peer"] - before == len(other.started) == 3 * (1 + 64 + 2 * 64)
    assert [(line["way"], line["by"]) for line in lines] == [
        (way, by) for way in ("latency", "one direction", "both directions") for by in ("Motet", "driver")
    ]
    assert ["GB/s" in line for line in lines] == [False, False, True, True, True, True]
    for device in devices:
        device.close()


def test_a_copy_that_changes_bytes_is_reported(monkeypatch: pytest.MonkeyPatch):
    fake = FakeApi(gpus=2)
    monkeypatch.setattr(driver, "load_api", lambda: fake)
    devices = two_gpus.open_both()
    copier = two_gpus.MotetCopier(devices, 4096)
    monkeypatch.setattr(copier, "start", lambda source: None)
    assert not copier.is_right(0)
    for device in devices:
        device.close()


@pytest.mark.parametrize(("size", "count"), [(4096, 64), (64 << 20, 32), (1 << 30, 4)])
def test_copies_are_limited_in_number_and_bytes(size: int, count: int):
    assert two_gpus.copies_of(size) == count


def test_programs_on_two_devices_give_the_results_of_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(two_gpus, "GPUS", ("host", "host/1"))
    for name, names, whole in (("one", "a", True), ("both", "ab", True), ("stages", "ab", False)):
        graph = two_gpus.mlp(list(names), whole, rows=24, width=32, layers=4)
        motet.compile(graph, devices=dict.fromkeys(names, "host")).save(tmp_path / f"{name}.motet")
    both, stages = list(two_gpus.measure_both(tmp_path)), list(two_gpus.measure_stages(tmp_path))
    assert both[0]["error"] < 1e-2 and both[1]["error"] == 0 and stages[0]["error"] == 0
    assert [line["by"] for line in both if "speedup" in line] == ["one program", "two sessions"]
    assert sum("speedup" in line for line in stages) == 2


def test_results_before_a_failure_or_the_end_of_time_are_kept():
    lines: list[two_gpus.Line] = []

    def run(text: str, limit: float) -> bool:
        return two_gpus.run_part("copies", [sys.executable, "-c", text], limit, lines.append)

    first = "import json, sys, time; print(json.dumps({'way': 'x'}), flush=True); "
    assert run(first, 60)
    assert not run(first + "sys.exit('no such GPU')", 60)
    assert not run(first + "time.sleep(600)", 2)
    found = [line.get("error", "kept") for line in lines]
    assert found == ["kept", "kept", "no such GPU", "kept", "ended after its limit of 2 s"]
    assert all(line["part"] == "copies" for line in lines)


def test_the_table_has_a_column_for_each_key(tmp_path: Path):
    lines = [{"part": "copies", "way": "latency", "min us": 12.3456}, {"part": "copies", "GB/s": 1.0},
             {"part": "both", "error": "a|b\nc"}]
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"part": "bo')
    assert two_gpus.table(two_gpus.read_lines(file)) == (
        "### copies\n\n| way | min us | GB/s |\n| --- | --- | --- |\n| latency | 12.35 |  |\n|  |  | 1 |\n\n"
        "### both\n\n| error |\n| --- |\n| a\\|b c |\n"
    )


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "expected --prepare FOLDER, --table FILE, or --files FOLDER with --out FILE"),
    (["--files", "x"], "expected --prepare FOLDER"),
    (["--files", "x", "--out", "y", "--parts", "copies,bandwidth"], "no part is named bandwidth; available: facts, "),
])
def test_mistakes_in_arguments_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        two_gpus.main(arguments)
    assert message in capsys.readouterr().err


def test_numpys_rows_are_those_of_the_layers():
    x, w = np.array([[1, -2], [3, 4]], np.float16), np.array([[1, 0], [1, -1]], np.float16)
    np.testing.assert_array_equal(two_gpus.mlp_rows([x, w], 2), [2, 7])
