"""The lab from the command line: a search, its database, and a compilation with it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.conftest import run_motet
from tests.unit.runtime.drivers.embedded.opening import needs

from motet.lab.operators import operator_program
from motet.runtime.device import probe

PROGRAM = "matmul:40x24x17xf32"


def motet(*words: str, status: int = 0, folder: Path) -> str:
    done = run_motet(*words, folder=folder, timeout=120)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_a_search_is_kept_and_compiled_with(tmp_path: Path):
    found = motet("lab", "explore", PROGRAM, "--strategy", "local", "--trials", "4", "--db", "lab.db", folder=tmp_path)
    assert "4 trials" in found and "compiler's choice" in found
    again = motet("lab", "explore", PROGRAM, "--trials", "4", "--resume", "--db", "lab.db", folder=tmp_path)
    assert "4 trials are recorded" in again
    (tmp_path / "p.mlir").write_text(operator_program(PROGRAM))
    told = motet("compile", "p.mlir", "--option", "schedules=lab.db", "-o", "p.motet", folder=tmp_path)
    assert "lab.db: records for 1 of 1 kernels: main_kernel_0; motet inspect --schedules shows them" in told
    (tmp_path / "q.mlir").write_text(operator_program("relu:3x5"))
    told = motet("compile", "q.mlir", "--option", "schedules=lab.db", "-o", "q.motet", folder=tmp_path)
    assert "lab.db: records for 0 of 1 kernels" in told
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


PLAIN = '{"i": {}, "j": {}, "k": {}}'


@pytest.mark.slow
def test_code_is_shown_of_the_schedule_that_is_asked_for(tmp_path: Path):
    """`show --schedule`, `diff` and `compile --emit` have the code of that schedule, not of the compiler's choice."""
    ours = motet("lab", "show", PROGRAM, "--code", "assembly", folder=tmp_path)
    given = motet("lab", "show", PROGRAM, "--schedule", PLAIN, "--code", "assembly", folder=tmp_path)
    assert "vfmadd" in ours and "-- assembly" in given and ours.partition("-- ")[2] != given.partition("-- ")[2]
    text = motet("lab", "diff", PROGRAM, "compiler", PLAIN, "--assembly", "--most", "5", folder=tmp_path)
    assert "more of" in text and "--most 0 all" in text and "\n@@" in text
    whole = motet("lab", "diff", PROGRAM, "compiler", PLAIN, "--assembly", "--most", "0", folder=tmp_path)
    assert len(whole.splitlines()) > 40 and "more of" not in whole


def test_holes_that_no_value_fills_say_why(tmp_path: Path):
    found = motet("lab", "explore", PROGRAM, "--schedule", '{"i": {}, "q": {}, "i#$a": {"unroll"}}', "--hole", "a=2,3",
                  "--db", "lab.db", folder=tmp_path, status=1)
    assert "legal with none of the values" in found and "no dimension or value q" in found
    found = motet("lab", "explore", PROGRAM, "--schedule", '{"i": {}, "j": {}, "k": {}, "i#$a": {"unroll"}, '
                  '"j#8": {"vectorize"}}', "--hole", "a=99,999", "--db", "lab.db", folder=tmp_path, status=1)
    assert "legal with none of the values" in found


def test_explain_tells_which_loops_of_a_nest_cannot_change(tmp_path: Path):
    found = motet("lab", "explain", PROGRAM, "--schedule", PLAIN, folder=tmp_path)
    assert "k parallelize: parallelize of k: tasks would race" in found


@pytest.mark.slow
def test_two_searches_share_a_database(tmp_path: Path):
    words = [sys.executable, "-m", "motet", "lab", "explore", PROGRAM, "--trials", "6", "--db", "lab.db", "--strategy"]
    both = [subprocess.Popen([*words, name], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for name in ("random", "local")]
    for process in both:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0 and errors == "" and "6 trials" in out, errors


def test_a_script_without_a_guard_measures(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text("from motet.lab import evaluate\nprint('begin', evaluate('matmul:8x8x8', repeat=1).validated)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and done.stdout.count("begin") == 1, done.stderr


@needs("mps3-an547")
def test_a_microcontroller_is_measured_by_its_instructions(tmp_path: Path):
    found = motet("lab", "evaluate", "matmul:6x8x5", "--device", "embedded:qemu?machine=mps3-an547&count=1",
                  "--counters", "instructions", "--repeat", "1", folder=tmp_path)
    assert re.search(r"instructions +[\d,]+\n", found) and "validated     result 0" in found
    assert re.search(r"computing .* \d+% of the peak\n", found)


@pytest.mark.slow
@needs("mps3-an547")
def test_a_microcontroller_is_measured_by_its_clock(tmp_path: Path):
    found = motet("lab", "evaluate", "matmul:6x8x5", "--device", "embedded:qemu?machine=mps3-an547", "--repeat", "1",
                  folder=tmp_path)
    assert re.search(r"computing +[1-9][\d,]*\.\d [kMG]FLOP/s", found) and "validated     result 0" in found
    assert "threads" not in found


def test_a_gpu_that_is_not_there_is_one_line_and_its_forms_are_shown(tmp_path: Path):
    if not any(info.available for info in probe("cuda")):
        told = motet("lab", "evaluate", "matmul:64x64x64", "--device", "cuda:0", status=1, folder=tmp_path)
        assert re.fullmatch(r"error: device cuda:0: not available: .+\n", told)
        told = motet("lab", "evaluate", "matmul:64x64x64", "--device", "cuda:0", "--schedule", '{"i": {"parallelize"}}',
                     status=1, folder=tmp_path)  # a schedule is read before the device is opened
        assert told.startswith("error: schedule: parallelize of i: launches of GPUs have no such primitive; expected")
    shown = motet("lab", "show", "matmul:64x64x64xf16", "--device", "cuda{arch=sm_90a}", folder=tmp_path)
    assert re.search(r'schedule  \{"i#\d+": \{"block"\}, "j#', shown) and "  launch 0  {" in shown
