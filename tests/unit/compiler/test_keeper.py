"""Jobs of a process that compiles again and again are done by forks of one that has the compiler loaded, one after the
other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

import motet
from motet.compiler.job import REQUEST, RESULT, Job
from motet.compiler.process.fork_server import Hired, Keeper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are told of a hang-up on Linux alone")

TEXT = b"func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {\n  return %x : tensor<3xf32>\n}\n"
SLOW = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n" + "".join(
    f"  %{i + 1} = math.tanh %{i or 'x'} : tensor<4xf32>\n" for i in range(20_000)
) + "  return %20000 : tensor<4xf32>\n}\n"


@pytest.fixture
def keeper() -> Generator[Keeper]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    keeper = Keeper(environment)
    yield keeper
    keeper.end()


def hire(keeper: Keeper, folder: Path, source: bytes, path: str = "in.mlir") -> Hired:
    folder.mkdir(exist_ok=True)
    job = Job("optimise", path, source, True, pipeline="cse")
    (folder / REQUEST).write_bytes(msgspec.msgpack.encode(job))
    return keeper.hire(folder, folder / "stderr", (), False, True)


def processes() -> set[int]:
    """This process's descendants, as far as their parents live."""
    listing = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout.split("\n")
    parents = {int(pid): int(parent) for pid, parent in (line.split() for line in listing[1:] if line)}
    found, before = {os.getpid()}, 0
    while len(found) > before:
        before = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found - {os.getpid()}


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_jobs_are_done_one_after_the_other_and_at_once(keeper: Keeper, tmp_path: Path) -> None:
    for number in range(2):
        with hire(keeper, tmp_path / str(number), TEXT) as hired:
            assert hired.stdout.read() == b"" and hired.wait() == 0
        assert b"func.func @main" in (tmp_path / str(number) / RESULT).read_bytes()
    several = [hire(keeper, tmp_path / f"at once {number}", TEXT) for number in range(3)]
    assert [hired.wait() for hired in several] == [0, 0, 0]
    assert keeper.is_there


def test_a_job_has_the_environment_and_folder_of_who_asks(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.mlir").write_bytes(TEXT)
    folder = tmp_path / "job"
    folder.mkdir()
    job = Job("optimise", "here.mlir", pipeline="cse")  # the name is relative
    (folder / REQUEST).write_bytes(msgspec.msgpack.encode(job))
    with keeper.hire(folder, folder / "stderr", (), False, True) as hired:
        assert hired.wait() == 0
    assert b"@main" in (folder / RESULT).read_bytes()


def test_a_job_that_dies_leaves_the_keeper(keeper: Keeper, tmp_path: Path) -> None:
    with hire(keeper, tmp_path / "dies", SLOW.encode()) as hired:
        deadline = time.monotonic() + 20
        while (victim := job_of(tmp_path / "dies")) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        assert hired.wait() == -signal.SIGKILL
    with hire(keeper, tmp_path / "next", TEXT) as hired:
        assert hired.wait() == 0


def test_nobody_goes_on_when_nobody_waits(keeper: Keeper, tmp_path: Path) -> None:
    with hire(keeper, tmp_path / "left", SLOW.encode()):
        deadline = time.monotonic() + 20
        while (victim := job_of(tmp_path / "left")) is None and time.monotonic() < deadline:
            time.sleep(0.01)
    assert victim is not None
    deadline = time.monotonic() + 20
    while not gone(victim) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(victim)
    keeper.end()
    while keeper.is_there and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not keeper.is_there


def test_workers_take_jobs_of_one_environment(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def worker(name: str) -> int:
        with hire(keeper, tmp_path / name, SLOW.encode()) as hired:
            while (pid := job_of(tmp_path / name)) is None:
                time.sleep(0.001)
            assert hired.wait() == 0
            return pid

    first = worker("first")
    assert worker("next") == first
    monkeypatch.setenv("MOTET_ELSEWHERE", "1")
    other = worker("in another environment")
    assert other != first and worker("again") == other
    monkeypatch.delenv("MOTET_ELSEWHERE")
    assert worker("as before") == first


def test_artifacts_do_not_depend_on_earlier_jobs(tmp_path: Path) -> None:
    programs = [program(body) for body in BODIES]
    both = [{text: compiled(text, tmp_path) for text in order} for order in (programs, programs[::-1])]
    assert both[0] == both[1] and len(set(both[0].values())) == len(BODIES)


BODIES = (
    "%r = math.exp %x : tensor<8x12xf32>",
    "%r = arith.addf %x, %x : tensor<8x12xf32>",
    "%c = arith.constant dense<2.5> : tensor<8x12xf32>\n  %r = arith.mulf %x, %c : tensor<8x12xf32>",
    "%n = tensor.empty() : tensor<12x8xf32>\n"
    "  %t = linalg.transpose ins(%x : tensor<8x12xf32>) outs(%n : tensor<12x8xf32>) permutation = [1, 0]\n"
    "  %z = arith.constant dense<0.0> : tensor<8x8xf32>\n"
    "  %p = linalg.matmul ins(%x, %t : tensor<8x12xf32>, tensor<12x8xf32>) outs(%z : tensor<8x8xf32>) "
    "-> tensor<8x8xf32>\n"
    "  %r = linalg.matmul ins(%p, %x : tensor<8x8xf32>, tensor<8x12xf32>) outs(%x : tensor<8x12xf32>) "
    "-> tensor<8x12xf32>",
)


def program(body: str) -> str:
    return "func.func @main(%x: tensor<8x12xf32>) -> tensor<8x12xf32> {\n  " \
        f"{body}\n  return %r : tensor<8x12xf32>\n}}\n"


def compiled(text: str, folder: Path) -> bytes:
    """The file of a program that is compiled anew."""
    file = folder / "program.motet"
    motet.compile(text, cache=False).save(file)
    return file.read_bytes()


def job_of(folder: Path) -> int | None:
    """The process whose standard error is in a job's folder."""
    for pid in processes():
        try:
            if Path(f"/proc/{pid}/fd/2").readlink() == folder / "stderr":
                return pid
        except OSError:
            continue
    return None
