"""Programs over several ranks: threads of this process, and processes of mpiexec."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import motet
from motet import ranks
from motet.artifact.reader import Artifact
from motet.errors import ArtifactError, CallError, DeviceError, MotetError, RankFailure

EXAMPLE = Path(__file__).parents[2] / "examples" / "two_hosts.mlir"

# Four devices, any extents: values move between all of them, one is read on two others, and one result on each.
FOUR = """
func.func @main(%x: tensor<?x16xf32>, %y: tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
  %0 = arith.mulf %x, %y {motet.affinity = "b"} : tensor<?x16xf32>
  %1 = arith.addf %0, %x {motet.affinity = "c"} : tensor<?x16xf32>
  %2 = arith.subf %0, %y {motet.affinity = "d"} : tensor<?x16xf32>
  %3 = arith.mulf %1, %2 {motet.affinity = "a"} : tensor<?x16xf32>
  %4 = arith.addf %3, %1 {motet.affinity = "d"} : tensor<?x16xf32>
  return %3, %4 : tensor<?x16xf32>, tensor<?x16xf32>
}
"""


def build(text: str, **devices: str) -> Artifact:
    return motet.compile(text.encode(), devices=devices)


def together(size: int, work: Callable[[ranks.RankTransport], Any]) -> list[Any]:
    """The results, or errors, of `work` on each rank of this process."""
    world = ranks.InProcessWorld(size)

    def on(rank: int) -> Any:
        try:
            return work(world.transport(rank))
        except MotetError as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(on, range(size)))


def expected(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    x, y = x.astype(np.float64), y.astype(np.float64)
    first = (x * y + x) * (x * y - y)
    return [first, first + x * y + x]


def inputs(rows: int) -> list[np.ndarray]:
    random = np.random.default_rng(rows)
    return [random.standard_normal((rows, 16), np.float32) for _ in range(2)]


PLACES = {"a": "rank:0/host", "b": "rank:1/null", "c": "rank:2/host", "d": "rank:1/host"}


@pytest.mark.parametrize("places", [
    PLACES,
    {"a": "rank:2/null/1", "b": "rank:2/null", "c": "rank:0/host", "d": "rank:1/null?view=1"},
    dict.fromkeys("abcd", "rank:1/host"),
])
def test_ranks_compute_what_numpy_does_for_all_extents(places: dict[str, str]) -> None:
    artifact = build(FOUR, **dict.fromkeys("abcd", "host,null"))

    def work(transport: ranks.RankTransport) -> list[Any]:
        with ranks.load(artifact, devices=places, transport=transport, threads=1, timeout=30) as session:
            found = []
            for rows in (1, 5, 64, 5, 0):
                found.append(session(*inputs(rows)) if transport.rank == 0 else session())
            return found

    for results in together(3, work):
        for rows, result in zip((1, 5, 64, 5, 0), results, strict=True):
            for each, right in zip(result, expected(*inputs(rows)), strict=True):
                np.testing.assert_allclose(each, right, rtol=1e-5, atol=1e-5)


def test_devices_without_a_place_are_spread_over_ranks() -> None:
    artifact = build(FOUR, **dict.fromkeys("abcd", "host"))

    def work(transport: ranks.RankTransport) -> list[str]:
        with ranks.load(artifact, transport=transport, threads=1, timeout=30) as session:
            return [choice.info.uri for choice in session.devices]

    assert together(4, work) == [[f"rank:{rank}/host" for rank in range(4)]] * 4


def test_results_of_the_root_only() -> None:
    artifact = build(FOUR, **dict.fromkeys("abcd", "host"))

    def work(transport: ranks.RankTransport) -> Any:
        with ranks.load(artifact, transport=transport, threads=1, timeout=30, results="root") as session:
            return session(*inputs(3)) if transport.rank == 0 else session()

    first, *others = together(4, work)
    np.testing.assert_allclose(first[0], expected(*inputs(3))[0], rtol=1e-5, atol=1e-5)
    assert others == [None] * 3


def test_a_failure_on_one_rank_is_the_same_error_on_all_and_the_next_call_works() -> None:
    artifact = build(FOUR, **dict.fromkeys("abcd", "host,null"))
    places = {**PLACES, "b": "rank:1/null?fault-at=1"}

    def work(transport: ranks.RankTransport) -> list[Any]:
        with ranks.load(artifact, devices=places, transport=transport, threads=1, timeout=30) as session:
            found: list[Any] = []
            for _ in range(6):
                try:
                    found.append(session(*inputs(4)) if transport.rank == 0 else session())
                except RankFailure as error:
                    found.append(str(error))
            return found

    first, *others = together(3, work)
    failed = [result for result in first if isinstance(result, str)]
    assert len(failed) == 1
    assert failed[0].startswith("rank 1: device null?fault-at=1: kernel ")
    for results in others:
        assert [r for r in results if isinstance(r, str)] == failed
    for result in (r for r in first if not isinstance(r, str)):
        np.testing.assert_allclose(result[1], expected(*inputs(4))[1], rtol=1e-5, atol=1e-5)


def test_unsuitable_arguments_are_an_error_on_all_ranks() -> None:
    artifact = build(FOUR, **dict.fromkeys("abcd", "host"))

    def work(transport: ranks.RankTransport) -> str:
        with ranks.load(artifact, transport=transport, threads=1, timeout=30) as session:
            with pytest.raises(CallError) as raised:
                session(np.zeros((3, 5), np.float32), np.zeros((3, 16), np.float32))
            return str(raised.value)

    first, second = together(2, work)
    assert first == second
    assert "shape 3x5 given" in first


def test_ranks_that_call_different_functions_are_told() -> None:
    text = FOUR + FOUR.replace("@main", "@other")
    artifact = build(text, **dict.fromkeys("abcd", "host"))

    def work(transport: ranks.RankTransport) -> None:
        with ranks.load(artifact, transport=transport, threads=1, timeout=30) as session:
            session["main" if transport.rank == 0 else "other"](*inputs(2))

    assert [str(error) for error in together(2, work)] == [
        "ranks disagree: rank 0 calls run of main, rank 1 run of other; expected the same calls in the same order"] * 2


def test_ranks_with_different_artifacts_are_told(tmp_path: Path) -> None:
    one = build(FOUR, **dict.fromkeys("abcd", "host"))
    other = build(FOUR.replace("subf", "addf"), **dict.fromkeys("abcd", "host"))

    def work(transport: ranks.RankTransport) -> None:
        ranks.load(other if transport.rank == 1 else one, transport=transport, timeout=30)

    found = together(3, work)
    assert len(set(map(str, found))) == 1
    assert isinstance(found[0], ArtifactError)
    assert "ranks disagree: SHA-256 " in str(found[0])


def test_ranks_without_the_file_get_it(tmp_path: Path) -> None:
    file = tmp_path / "model.motet"
    file.write_bytes(bytes(build(FOUR, **dict.fromkeys("abcd", "host")).data))

    def work(transport: ranks.RankTransport) -> Any:
        path = file if transport.rank == 0 else tmp_path / "elsewhere.motet"
        with ranks.load(path, transport=transport, threads=1, timeout=30) as session:
            return session(*inputs(3)) if transport.rank == 0 else session()

    for result in together(3, work):
        np.testing.assert_allclose(result[0], expected(*inputs(3))[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("places", "message"), [
    ({"a": "rank:7/host"}, "device rank:7/host: rank 7 is not there; there are ranks 0 to 1;"),
    ({"a": "elsewhere/host"}, "no rank runs on machine 'elsewhere'; ranks run on: "),
    ({"a": "rank:1/cuda:17"}, "rank:1/cuda:17"),
    ({"a": "rank:1/null"}, "the artifact has code for: host"),
])
def test_devices_that_are_not_there(places: dict[str, str], message: str) -> None:
    artifact = build(FOUR, **dict.fromkeys("abcd", "host"))
    found = together(2, lambda transport: ranks.load(artifact, devices=places, transport=transport, timeout=30))
    assert len(set(map(str, found))) == 1
    assert isinstance(found[0], DeviceError)
    assert message in str(found[0])


@pytest.mark.parametrize(("found", "how"), [
    ("/usr/bin/mpiexec", "start this with mpiexec -n 3, or more"),
    (None, "mpiexec is not installed: pip install 'motet[mpi]', then start this with mpiexec -n 3, or more"),
])
def test_a_program_for_a_rank_that_is_not_there_says_how_to_start_it(
    found: str | None, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = build(FOUR, a="host", b="rank:2/host", c="host", d="host")
    monkeypatch.setattr(shutil, "which", lambda name, path=None: found)
    with pytest.raises(DeviceError) as raised:
        motet.load(artifact)
    assert f"rank:2/host (this run has 1 rank; {how})" in str(raised.value)


def test_places_of_the_only_process() -> None:
    artifact = build(FOUR, **dict.fromkeys("abcd", "host,null"))
    with motet.load(artifact, devices={"a": "rank:0/host", "b": "rank:0/null/1?view=1"}) as session:
        assert [choice.info.uri for choice in session.devices][:2] == ["host", "null/1?view=1"]
        np.testing.assert_allclose(session(*inputs(3))[0], expected(*inputs(3))[0], rtol=1e-5, atol=1e-5)
    for place, ranks_needed in (("rank:3", 4), ("elsewhere", 2)):
        with pytest.raises(DeviceError, match=f"device {place}/host: {place} is not there: .* -n {ranks_needed}, or"):
            motet.load(artifact, devices={"a": f"{place}/host"})


def test_values_in_transit_are_traced() -> None:
    artifact = build(FOUR, **dict.fromkeys("abcd", "host"))

    def work(transport: ranks.RankTransport) -> Any:
        with ranks.load(artifact, transport=transport, threads=1, timeout=30) as session:
            return session["main"].trace(*(inputs(8) if transport.rank == 0 else ()))[1]

    for events in together(4, work):
        names = [(each.device, each.event.name) for each in events]
        sent = sum("send to" in name for _, name in names)
        assert sent == sum("receive from" in name for _, name in names) > 3
        assert {f"rank:{rank}/host" for rank in range(4)} <= {device for device, _ in names}
        assert all(each.event.end >= each.event.begin for each in events)


@pytest.mark.parametrize("seed", range(6))
def test_late_messages_that_overtake_one_another_change_nothing(seed: int) -> None:
    artifact = build(FOUR, **dict.fromkeys("abcd", "host"))

    def work(transport: ranks.RankTransport) -> list[Any]:
        late = ranks.FaultyTransport(transport, seed, late=0.01)
        with ranks.load(artifact, transport=late, threads=1, timeout=30) as session:
            return [session(*inputs(rows)) if late.rank == 0 else session() for rows in (3, 9, 3)]

    for results in together(4, work):
        for rows, result in zip((3, 9, 3), results, strict=True):
            np.testing.assert_allclose(result[1], expected(*inputs(rows))[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rank", range(4))
def test_a_lost_message_ends_the_session_on_all_ranks_with_one_error(rank: int) -> None:
    artifact = build(FOUR, **dict.fromkeys("abcd", "host"))

    def work(transport: ranks.RankTransport) -> list[Any]:
        dropped = frozenset({0}) if transport.rank == rank else frozenset[int]()
        faulty = ranks.FaultyTransport(transport, 0, dropped=dropped)
        with ranks.load(artifact, transport=faulty, threads=1, timeout=0.7) as session:
            found: list[Any] = []
            for _ in range(2):
                with pytest.raises(RankFailure) as raised:
                    session(*inputs(4))
                found.append(str(raised.value))
            return found

    found = together(4, work)
    assert all(each == found[0] for each in found), found
    # Of which rank, and on which side: those that wait for it give up, too, and so do those that send to them.
    assert re.search("has not (come|taken) after 0.7 s", found[0][0])
    assert "the session cannot be used any more" in found[0][1]


def test_a_rank_that_stops_is_an_error_of_the_others_in_time() -> None:
    artifact = build(FOUR, **dict.fromkeys("abcd", "host"))

    def work(transport: ranks.RankTransport) -> str:
        session = ranks.load(artifact, transport=transport, threads=1, timeout=0.7)
        session(*inputs(4))
        if transport.rank == 2:
            return "stopped"
        with pytest.raises(RankFailure) as raised:
            session(*inputs(4))
        return str(raised.value)

    assert together(4, work) == ["rank 2: no answer after 0.7 s (of rank 2)"] * 2 + ["stopped"] + [
        "rank 2: no answer after 0.7 s (of rank 2)"]


# -- processes -------------------------------------------------------------------------------------


def _mpiexec() -> str | None:
    return shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


over_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or _mpiexec() is None, reason="needs MPI: pip install 'motet[mpi]'")


def launch(count: int, arguments: Sequence[str], **kept: Any) -> subprocess.CompletedProcess[str]:
    """Run python under mpiexec."""
    return subprocess.run(
        [str(_mpiexec()), "-n", str(count), sys.executable, *arguments], capture_output=True, text=True, timeout=120,
        check=False, **kept,
    )


@over_mpi
@pytest.mark.parametrize("count", [2, 4])
def test_the_transport_over_mpi_conforms(count: int) -> None:
    done = launch(count, ["-m", "motet.ranks.conformance"])
    assert (done.returncode, done.stdout) == (0, f"10 checks passed on {count} ranks\n"), done.stderr


@over_mpi
def test_run_over_two_processes(tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    done = launch(2, ["-m", "motet", "run", str(EXAMPLE), "--verify", "--trace", str(trace)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("verified: result 0") == 1
    entries = json.loads(trace.read_text())["traceEvents"]
    names = {entry["args"]["name"] for entry in entries if entry["name"] == "process_name"}
    assert names == {"rank:0/host", "rank:1/host", "rank:0/network", "rank:1/network"}


@over_mpi
@pytest.mark.parametrize(("arguments", "message"), [
    (["--verify", "--device", "here=host", "--device", "there=rank:9/host"], "rank 9 is not there; there are ranks 0"),
    (["--input", "3x3xf32=1"], "shape 3x3 given, 64x128 expected"),
    (["--input", "3x3"], "3x3"),
])
def test_errors_are_said_once(arguments: list[str], message: str) -> None:
    done = launch(2, ["-m", "motet", "run", str(EXAMPLE), *arguments])
    assert done.returncode != 0
    assert [line for line in done.stderr.splitlines() if line.startswith("error:")] != []
    assert done.stderr.count(message) == 1, done.stderr
    assert "Traceback" not in done.stderr


SCRIPT = """
import sys
import numpy as np
from motet import ranks

with ranks.load(sys.argv[1], devices={"a": "rank:0/host", "b": "rank:1/host", "c": "rank:2/host", "d": "rank:3/host"},
                threads=1, timeout=60) as session:
    random = np.random.default_rng(3)
    x, y = (random.standard_normal((700, 16), np.float32) for _ in range(2))
    for _ in range(100):
        first, second = session(x, y)
    right = (x * y + x) * (x * y - y)
    assert np.allclose(first, right, rtol=1e-5, atol=1e-5)
    assert np.allclose(second, right + x * y + x, rtol=1e-5, atol=1e-5)
    print(f"rank {session.rank} of {session.size} agrees", flush=True)
"""


@over_mpi
def test_a_script_over_four_processes(tmp_path: Path) -> None:
    (tmp_path / "model.motet").write_bytes(bytes(build(FOUR, **dict.fromkeys("abcd", "host")).data))
    (tmp_path / "script.py").write_text(SCRIPT)
    done = launch(4, ["script.py", "model.motet"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # Launchers forward what ranks print in pieces, so that two lines may become one and an empty one.
    assert sorted(re.findall(r"rank \d of 4 agrees", done.stdout)) == [f"rank {rank} of 4 agrees" for rank in range(4)]


@over_mpi
def test_different_files_are_told(tmp_path: Path) -> None:
    for rank, name in enumerate(("addf", "mulf")):
        file = tmp_path / str(rank) / "model.motet"
        file.parent.mkdir()
        file.write_bytes(bytes(build(FOUR.replace("subf", name), **dict.fromkeys("abcd", "host")).data))
    (tmp_path / "script.py").write_text(
        "import os, sys\nfrom motet import ranks\nfrom motet.errors import ArtifactError\n"
        "transport = ranks.transport_of_launcher()\nos.chdir(str(transport.rank))\n"
        "try:\n    ranks.load('model.motet', transport=transport)\nexcept ArtifactError as error:\n"
        "    print(transport.rank, error, flush=True)\n")
    done = launch(2, ["script.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model.motet: ranks disagree: SHA-256 ") == 2


def test_a_launcher_without_mpi4py_says_what_to_install() -> None:
    code = "import sys; sys.modules['mpi4py'] = None\nfrom motet.tools.main import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", str(EXAMPLE), "--verify"], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PMI_SIZE": "2", "PMI_RANK": "0"}, check=False,
    )
    assert done.returncode == 1
    assert "one of 2 processes of an MPI launcher, but mpi4py cannot be used" in done.stderr
    assert "pip install 'motet[mpi]'" in done.stderr


KILLED = """
import os, signal, sys, threading
import numpy as np
from motet import ranks

moment, victim, file = float(sys.argv[2]), int(sys.argv[3]), sys.argv[1]
with ranks.load(file, threads=1, timeout=20) as session:
    print(f"began {os.getpid()}", flush=True)
    if session.rank == victim:
        threading.Timer(moment, os.kill, (os.getpid(), signal.SIGKILL)).start()
    x = np.ones((64, 16), np.float32)
    while True:
        first, second = session(x, x)
        assert (first == 0).all() and (second == 2).all()
"""


def killed_at_random_moments(folder: Path, times: int) -> None:
    """The launcher ends the job: no rank hangs, none is left, and none had a wrong result before."""
    (folder / "model.motet").write_bytes(bytes(build(FOUR, **dict.fromkeys("abcd", "host")).data))
    (folder / "script.py").write_text(KILLED)
    random = np.random.default_rng()
    for _ in range(times):
        moment, victim = float(random.uniform(0, 0.5)), int(random.integers(2))
        done = launch(2, ["script.py", "model.motet", str(moment), str(victim)], cwd=folder)
        assert done.returncode != 0, (moment, victim)
        assert "AssertionError" not in done.stderr, (moment, victim)
        numbers = [int(number) for number in re.findall(r"began (\d+)", done.stdout)]
        assert len(numbers) == 2, done.stderr
        assert not any(Path(f"/proc/{number}").exists() for number in numbers), (moment, victim)


@over_mpi
def test_a_rank_that_is_killed_ends_the_job(tmp_path: Path) -> None:
    killed_at_random_moments(tmp_path, 3)


@over_mpi
@pytest.mark.slow
def test_a_rank_that_is_killed_at_any_moment_ends_the_job(tmp_path: Path) -> None:
    killed_at_random_moments(tmp_path, 50)


STOPPED = """
import os, signal, sys
import numpy as np
from motet import ranks

how, victim = sys.argv[2], int(sys.argv[3])
x = np.ones((64, 16), np.float32)
with ranks.load(sys.argv[1], threads=1, timeout=2 if how == "stops" else 60) as session:
    print(f"began {os.getpid()}", flush=True)
    while True:
        session(x, x)
        if session.rank == victim and how == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif session.rank == victim:
            raise ValueError("a mistake of its own")
"""


@over_mpi
@pytest.mark.every
@pytest.mark.parametrize(("how", "victim", "message"), [
    ("stops", 1, "RankFailure: rank 1: no answer after 2 s"), ("stops", 0, "RankFailure: rank 0: no answer after 2 s"),
    ("raises", 1, "ValueError: a mistake of its own"),
])
def test_a_rank_that_stops_or_raises_ends_the_job(tmp_path: Path, how: str, victim: int, message: str) -> None:
    (tmp_path / "model.motet").write_bytes(bytes(build(FOUR, **dict.fromkeys("abcd", "host")).data))
    (tmp_path / "script.py").write_text(STOPPED)
    done = launch(2, ["script.py", "model.motet", how, str(victim)], cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.count(message) == 1, done.stderr
    numbers = [int(number) for number in re.findall(r"began (\d+)", done.stdout)]
    assert len(numbers) == 2
    end = time.monotonic() + 20  # the launcher has told them to end
    while any(Path(f"/proc/{number}").exists() for number in numbers):
        assert time.monotonic() < end, numbers
        time.sleep(0.05)


@pytest.mark.slow
@over_mpi
def test_a_transformer_over_four_processes_has_the_numbers_of_one() -> None:
    example = EXAMPLE.parent / "sharded_transformer.py"
    done = launch(4, [str(example), "--layers", "2"])
    assert done.returncode == 0, done.stderr
    assert "4 ranks: " in done.stdout
    assert "equal to one rank: True" in done.stdout
    assert float(done.stdout.split()[-1]) < 1e-4
