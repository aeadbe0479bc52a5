"""Forms that are packed here and run elsewhere: the way there, with the host as the device."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")
from tests.gpu_forms.cases import Array, Bundle, Case, Expected, generated, sample
from tests.gpu_forms.pack import pack_groups
from tests.gpu_forms.run import run


@pytest.mark.slow
def test_what_is_packed_is_right_where_it_runs_and_what_is_wrong_is_told(tmp_path: Path) -> None:
    pack_groups(tmp_path, ["onnx-norms", "random-integers"], 3, 40, "host")
    assert run(tmp_path, "host", 60, tmp_path / "results.json") == 0
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["forms"] >= 4 and not found["wrong"] and not found["errors"]
    spoilt = next(iter(sorted(tmp_path.glob("onnx-*.cases"))))
    bundle = msgspec.msgpack.decode(spoilt.read_bytes(), type=Bundle)
    first = bundle.cases[0]
    wanted = first.results[0].exact.array() + 1
    results = [msgspec.structs.replace(first.results[0], exact=Array.of(wanted)), *first.results[1:]]
    cases = [Case(first.group, first.name, results), *bundle.cases[1:]]
    spoilt.write_bytes(msgspec.msgpack.encode(Bundle(bundle.inputs, cases)))
    assert run(tmp_path, "host", 60, tmp_path / "results.json") == 1
    found = json.loads((tmp_path / "results.json").read_text())
    assert [name.split(": ", 1)[1] for name in found["wrong"]] == [first.name]


def test_an_artifact_that_cannot_run_fails_alone(tmp_path: Path) -> None:
    pack_groups(tmp_path, ["onnx-norms"], 2, 60, "host")
    (tmp_path / "a.motet").write_bytes(b"no artifact")
    (tmp_path / "a.cases").write_bytes(msgspec.msgpack.encode(Bundle([], [])))
    assert run(tmp_path, "host", 60, tmp_path / "results.json") == 1
    found = json.loads((tmp_path / "results.json").read_text())
    assert list(found["errors"]) == ["a"] and not found["wrong"] and found["forms"] > 0


@pytest.mark.parametrize("value, fault", [
    (1.0, False), (1.0 + 1e-7, False), (1.1, True), (np.nan, True), (np.inf, True),
])
def test_results_may_be_as_far_off_as_is_said(value: float, fault: bool) -> None:
    expected = Expected("f32", Array.of(np.ones((2, 3))), 1e-6, 1e-9)
    found = np.ones((2, 3), np.float32)
    found[1, 2] = value
    assert bool(expected.fault(found)) == fault


def test_large_results_are_compared_by_samples() -> None:
    whole = generated("f32", (100, 101), 5, True)
    expected = Expected("f32", Array.of(sample(whole)), shape=[100, 101])
    assert not expected.fault(whole)
    whole[-1, -1] = 77
    assert expected.fault(whole)
    assert expected.fault(whole.reshape(-1))
