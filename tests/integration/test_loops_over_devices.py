"""Loops over devices whose number of iterations a call decides give what numpy gives, wherever their devices are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.loops_over_devices import PROGRAMS, Array, Program
from tests.integration.noise import install
from tests.integration.placed import build_placed

from motet.artifact.reader import Artifact
from motet.runtime import load
from motet.runtime.device import probe

RISCV = next((info.reason for info in probe("riscv") if not info.available and info.uri == "riscv:qemu"), "")
TARGETS = ("x86-64-v3", "null:x86-64-v3", "riscv:rv64gc")
DEVICES = {
    "null": {},
    "two hosts": {"a": "host/0?threads=1", "b": "host/1?threads=1"},
    "one host": {"b": "host"},
    "null in view": {"b": "null?view=1&queues=1"},
    "two null devices": {"a": "null", "b": "null/1?queues=3"},
    "riscv": {"b": "riscv:qemu?harts=2"},
}


def check(found: Any, program: Program, call: Sequence[Array]) -> None:
    results = found if isinstance(found, tuple) else (found,)
    doubles = [each.astype(np.float64) if each.dtype == np.float32 else each for each in call]
    for result, wanted in zip(results, program.expected(*doubles), strict=True):
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=2e-4, atol=2e-5)


@pytest.fixture(scope="module", params=PROGRAMS)
def built(request: pytest.FixtureRequest) -> tuple[Artifact, Program]:
    program = PROGRAMS[request.param]
    return build_placed(program.text, ("a=host,null", "b=null,riscv,host"), TARGETS), program


@pytest.mark.parametrize("devices", DEVICES)
def test_loops_over_two_devices_give_what_numpy_gives(built: tuple[Artifact, Program], devices: str) -> None:
    if devices == "riscv" and RISCV:
        pytest.skip(RISCV)
    artifact, program = built
    with load(artifact, devices=DEVICES[devices], threads=2) as session:
        for call in program.calls:
            check(session(*call), program, call)
        kept = [[each.copy() for each in call] for call in program.calls]
        for call, before in zip(program.calls, kept, strict=True):
            check(session(*call), program, call)
            for each, copy in zip(call, before, strict=True):
                np.testing.assert_array_equal(each, copy)


@pytest.mark.parametrize("name", PROGRAMS)
def test_devices_that_run_late_do_not_change_what_loops_give(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    program = PROGRAMS[name]
    artifact = build_placed(
        program.text, ("a=noisy-host", "b=noisy-null"), ("noisy-host:x86-64-v3", "noisy-null:x86-64-v3")
    )
    calls = [call for call in program.calls if call[0].shape or call[0] < 100]
    for seed in range(2):
        late = f"delay=2e-4&seed={seed}"
        devices = {"a": f"noisy-host?{late}", "b": f"noisy-null?{late}1&queues={seed + 1}"}
        with load(artifact, devices=devices) as session:
            for call in calls:
                check(session(*call), program, call)
