"""Ctrl-C: one line, status 130, nothing half done and nobody left behind; and so for `kill`, in any moment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src"


def large_program(kernels: int) -> str:
    """Kernels that all differ, so that compiling takes some seconds."""
    kind = "tensor<64x64xf32>"
    lines = [
        f"func.func @main(%x: {kind}) -> {kind} {{",
        "  %v0 = arith.constant 0.0 : f32",
        f"  %e = tensor.empty() : {kind}",
        f"  %t0 = linalg.copy ins(%x : {kind}) outs(%e : {kind}) -> {kind}",
    ]
    for i in range(kernels):
        lines += [
            f"  %f{i} = linalg.fill ins(%v0 : f32) outs(%e : {kind}) -> {kind}",
            f"  %c{i} = arith.constant {i + 1.5} : f32",
            f"  %s{i} = linalg.fill ins(%c{i} : f32) outs(%e : {kind}) -> {kind}",
            f"  %m{i} = linalg.matmul ins(%t{i}, %x : {kind}, {kind}) outs(%f{i} : {kind}) -> {kind}",
            f"  %t{i + 1} = linalg.add ins(%m{i}, %s{i} : {kind}, {kind}) outs(%e : {kind}) -> {kind}",
        ]
    return "\n".join([*lines, f"  return %t{kernels} : {kind}", "}", ""])


def processes_of_session(session: int) -> list[int]:
    """Live processes of a session (zombies do not count)."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(folder.name))
    return found


def children(parent: int) -> list[int]:
    found: list[int] = []
    for pid in processes_of_session(parent):
        with contextlib.suppress(OSError):
            if int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(pid)
    return found


@dataclass
class Compile:
    """`motet compile` of a large program, in a session of its own."""

    process: subprocess.Popen[str]
    folder: Path
    temporary: Path

    def hold(self) -> None:
        """Stop the command's own processes, lest a fast machine ends the work before the signal comes."""
        for pid in processes_of_session(self.process.pid):
            if pid != self.process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)

    def left(self) -> list[int]:
        """Processes that are still there after some seconds of grace. One that was held before it could ask to die with
        its parent sees that only when it goes on."""
        for pid in processes_of_session(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + 60
        while (left := processes_of_session(self.process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left


@pytest.fixture
def compiling(tmp_path: Path) -> Generator[Compile]:
    if not Path("/proc").is_dir():
        pytest.skip("looks for processes in /proc")
    folder, temporary = tmp_path / "here", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    (folder / "large.mlir").write_text(large_program(120))
    process = subprocess.Popen(
        [sys.executable, "-m", "motet", "compile", "large.mlir", "--no-cache"], cwd=folder, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES), "TMPDIR": str(temporary)},
    )
    yield Compile(process, folder, temporary)
    for pid in processes_of_session(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.communicate()


def wait_for_processes(compiling: Compile, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(processes_of_session(compiling.process.pid)) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    assert compiling.process.poll() is None, "compiled before it could be interrupted"


# The command alone; with its worker; with processes that compile kernels, where there are processors for several.
MOMENTS = {"starting": 1, "worker": 2, "kernels": 2 + min(2, len(os.sched_getaffinity(0)) - 1)}


@pytest.mark.parametrize("moment", ["worker", "kernels"])
@pytest.mark.parametrize("whole_group", [True, False], ids=["terminal", "kill"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_compile_leaves_nothing(
    compiling: Compile, number: signal.Signals, whole_group: bool, moment: str
) -> None:
    wait_for_processes(compiling, MOMENTS[moment])
    compiling.hold()
    time.sleep(0.3)
    # A terminal signals every process of the group; `kill` just the one it is given.
    if whole_group:
        os.killpg(compiling.process.pid, number)
    else:
        compiling.process.send_signal(number)
    out, err = compiling.process.communicate(timeout=120)
    assert compiling.process.returncode == 128 + number, out + err
    assert err.splitlines() == (["interrupted"] if number == signal.SIGINT else [])
    assert [path.name for path in compiling.folder.iterdir()] == ["large.mlir"]
    assert not compiling.left()
    assert not list(compiling.temporary.iterdir())


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_compile_leaves_no_process(compiling: Compile, moment: str) -> None:
    wait_for_processes(compiling, MOMENTS[moment])
    compiling.process.kill()
    compiling.process.communicate(timeout=120)
    assert not compiling.left()
    assert [path.name for path in compiling.folder.iterdir()] == ["large.mlir"]


def test_compiler_that_cannot_be_loaded_is_one_error(compiling: Compile, tmp_path: Path) -> None:
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite" / "__init__.py").write_text("raise RuntimeError('of another world')\n")
    outcome = subprocess.run(
        [sys.executable, "-m", "motet", "compile", "large.mlir", "--no-cache"], cwd=compiling.folder, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=240,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{SOURCES}"},
    )
    assert outcome.returncode == 1
    (line,) = outcome.stderr.splitlines()
    assert line.startswith("error: large.mlir: the compiler died with exit status 1: RuntimeError: of another world")


def test_compile_whose_worker_is_killed_is_one_error_that_shows_how_to_repeat_it(compiling: Compile) -> None:
    wait_for_processes(compiling, MOMENTS["kernels"])
    (worker,) = children(compiling.process.pid)
    os.kill(worker, signal.SIGKILL)
    out, err = compiling.process.communicate(timeout=120)
    assert compiling.process.returncode == 1, out + err
    (line,) = err.splitlines()
    assert line.startswith("error: large.mlir: the compiler died with signal SIGKILL")
    assert "reproduce with:" in line
    assert not compiling.left()
