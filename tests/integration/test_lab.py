"""The lab from the command line: a search, its database, and a compilation with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from motet.lab.operators import operator_program

PROGRAM = "matmul:40x24x17xf32"


def motet(*words: str, status: int = 0, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-m", "motet", *words], cwd=folder, capture_output=True, text=True,
                          check=False, timeout=120)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_a_search_is_kept_and_compiled_with(tmp_path: Path):
    found = motet("lab", "explore", PROGRAM, "--strategy", "local", "--trials", "4", "--db", "lab.db", folder=tmp_path)
    assert "4 trials" in found and "compiler's choice" in found
    again = motet("lab", "explore", PROGRAM, "--trials", "4", "--resume", "--db", "lab.db", folder=tmp_path)
    assert "4 trials are recorded" in again
    (tmp_path / "p.mlir").write_text(operator_program(PROGRAM))
    motet("compile", "p.mlir", "--option", "schedules=lab.db", "-o", "p.motet", folder=tmp_path)
    assert "record      lab.db: " in motet("inspect", "p.motet", "--schedules", folder=tmp_path)
    assert "within 5 %" in motet("lab", "explore", PROGRAM, "--replay", "--db", "lab.db", folder=tmp_path)
    motet("lab", "display", "lab.db", "-o", "lab.html", folder=tmp_path)
    assert "<svg" in (tmp_path / "lab.html").read_text()


def test_an_interrupt_keeps_the_records(tmp_path: Path):
    words = [sys.executable, "-m", "motet", "lab", "explore", PROGRAM, "--strategy", "random", "--trials", "500",
             "--db", "lab.db"]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    end = time.time() + 60
    while time.time() < end and not (tmp_path / "lab.db").exists():
        time.sleep(0.1)
    while time.time() < end and "main_kernel_0" not in motet("lab", "records", "list", "lab.db", folder=tmp_path):
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "they are kept in lab.db" in errors and len(errors.strip().splitlines()) == 1, errors
