"""Ctrl-C: one line, status 130, nothing half done and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("whole_group", [True, False], ids=["terminal", "kill"])
def test_interrupted_compile_leaves_nothing(tmp_path: Path, whole_group: bool) -> None:
    (tmp_path / "large.mlir").write_text(large_program(400))
    process = subprocess.Popen(
        [sys.executable, "-m", "motet", "compile", "large.mlir", "--no-cache"], cwd=tmp_path, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )
    deadline = time.monotonic() + 30
    while len(processes_of_session(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    assert process.poll() is None, "compiled before it could be interrupted"
    # A terminal signals every process of the group; `kill` just the one it is given.
    if whole_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, out + err
    assert err.splitlines() == ["interrupted"]
    assert [path.name for path in tmp_path.iterdir()] == ["large.mlir"]
    deadline = time.monotonic() + 10
    while (left := processes_of_session(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
