"""Several devices that are all the host: instances with cores and threads of their own, and what a trace shows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from tests.integration.placed import build_placed

from motet.errors import DeviceError
from motet.runtime import load
from motet.runtime.trace import chrome_trace

CHAIN = """
func.func @main(%x: tensor<?x7xf32>) -> tensor<?x7xf32> {
  %0 = arith.addf %x, %x {motet.affinity = "a"} : tensor<?x7xf32>
  %1 = arith.mulf %0, %0 {motet.affinity = "b"} : tensor<?x7xf32>
  %2 = arith.subf %1, %0 {motet.affinity = "a"} : tensor<?x7xf32>
  return %2 : tensor<?x7xf32>
}
"""
BRANCHES = """
func.func @main(%x: tensor<?x7xf32>) -> tensor<?x7xf32> {
  %0 = arith.addf %x, %x {motet.affinity = "a"} : tensor<?x7xf32>
  %1 = arith.mulf %x, %x {motet.affinity = "b"} : tensor<?x7xf32>
  %2 = arith.subf %1, %0 {motet.affinity = "a"} : tensor<?x7xf32>
  return %2 : tensor<?x7xf32>
}
"""
X = np.random.default_rng(0).standard_normal((13, 7), np.float32)
EXPECTED = {CHAIN: 4 * X * X - 2 * X, BRANCHES: X * X - 2 * X}


@pytest.mark.parametrize("text", [CHAIN, BRANCHES], ids=["chain", "branches"])
@pytest.mark.parametrize("second", ["host", "host/1", "host/1?threads=1", "host?threads=2"])
def test_instances_of_the_host_give_what_the_host_gives(text: str, second: str) -> None:
    with load(build_placed(text, ("a=host", "b=host"), ("x86-64-v3",)), devices={"b": second}) as session:
        assert [choice.info.uri for choice in session.devices] == ["host", second]
        for rows in (13, 1, 5):
            np.testing.assert_allclose(session(X[:rows].copy()), EXPECTED[text][:rows], rtol=1e-5, atol=1e-6)


def test_ordinals_of_the_host_are_instances() -> None:
    with load(build_placed(CHAIN, ("a=host[0]", "b=host[1]"), ("x86-64-v3",))) as session:
        assert [choice.info.uri for choice in session.devices] == ["host", "host/1"]
        assert not session.notes
        np.testing.assert_allclose(session(X), EXPECTED[CHAIN], rtol=1e-5, atol=1e-6)


def test_two_devices_of_a_kind_without_ordinals_share_one_and_say_so() -> None:
    with load(build_placed(CHAIN, ("a=host", "b=host"), ("x86-64-v3",))) as session:
        assert [choice.info.uri for choice in session.devices] == ["host", "host"]
        assert "@b: it shares host with @a" in session.notes[0]


def test_workers_stay_on_the_cores_of_their_instance() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one processor only")
    before = tasks()
    artifact = build_placed(BRANCHES, ("a=host", "b=host"), ("x86-64-v3",))
    x = np.random.default_rng(0).standard_normal((40_000, 7), np.float32)
    with load(artifact, devices={"b": f"host/1?cores={allowed[0]}+{allowed[1]}"}, threads=1) as session:
        np.testing.assert_allclose(session(x), x * x - 2 * x, rtol=1e-4, atol=1e-5)
        new = [os.sched_getaffinity(int(task)) for task in tasks() - before]
        assert {allowed[0], allowed[1]} in new


def tasks() -> set[str]:
    """The threads of this process."""
    return {path.name for path in Path("/proc/self/task").iterdir()}


@pytest.mark.parametrize(("uri", "said"), [
    ("host?cores=100000", "option cores=100000.*of those that this process may run on"),
    ("host?cores=x", "'x'; expected processors such as"),
    ("host?cores=2-1", "'2-1'"),
    ("host?core=1", "no option 'core'; there are: threads"),
    ("host/x", "it is not present"),
])
def test_instances_that_cannot_be_are_named(uri: str, said: str) -> None:
    with pytest.raises(DeviceError, match=said):
        load(build_placed(BRANCHES, ("a=host", "b=host"), ("x86-64-v3",)), devices={"b": uri})


def test_a_trace_has_every_device_of_a_call() -> None:
    artifact = build_placed(CHAIN, ("a=host", "b=null"))
    with load(artifact) as session:
        result, events = session.main.trace(X)
        np.testing.assert_allclose(result, EXPECTED[CHAIN], rtol=1e-5, atol=1e-6)
        entries = json.loads(chrome_trace(events, "main"))["traceEvents"]
        names = {entry["pid"]: entry["args"]["name"] for entry in entries if entry["name"] == "process_name"}
        assert sorted(names.values()) == ["host", "null"]
        spans = [entry for entry in entries if entry["ph"] == "X"]
        kinds = sorted((names[entry["pid"]], entry["cat"]) for entry in spans)
        assert kinds.count(("host", "launch")) == 2 and kinds.count(("null", "launch")) == 1
        assert {entry["args"].get("bytes") for entry in spans if entry["cat"] in ("read", "write")} == {X.nbytes}
        assert all(entry["ts"] >= 0 and entry["dur"] >= 0 for entry in spans)
        session(X)  # and the devices no longer record
        assert all(not loaded.device.profile(False) for loaded in session._bound.opened)
