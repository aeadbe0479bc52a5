"""Mistakes of a user: one line that says what is wrong, status 1, no trace of the inside."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Fails = Callable[..., str]
INPUTS = ("--input", "3x5xf32=1", "--input", "3x5xf32=2")


@pytest.mark.parametrize("command", ["compile", "run", "bench", "inspect"])
@pytest.mark.parametrize("name", ["none.mlir", "none.motet"])
def test_missing_file(fails: Fails, command: str, name: str) -> None:
    assert name in (message := fails(command, name))
    assert "cannot be read: no such file or directory" in message


def test_mlir_that_does_not_parse_is_located(fails: Fails, tmp_path: Path) -> None:
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %y\n}\n"
    (tmp_path / "bad.mlir").write_text(text)
    assert fails("compile", "bad.mlir").startswith("bad.mlir:2:")
    assert fails("opt", "bad.mlir", "--pipeline", "cse").startswith("bad.mlir:2:")
    assert not (tmp_path / "bad.motet").exists()


def test_file_of_another_kind(fails: Fails, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    assert fails("compile", "picture.png").startswith("picture.png")


def test_format_that_does_not_exist(fails: Fails, add: Path) -> None:
    message = fails("compile", add.name, "--format", "caffe")
    assert "caffe" in message and "auto, mlir, onnx, openvino, stablehlo" in message


def test_stage_that_does_not_exist(fails: Fails, add: Path) -> None:
    assert "no such stage; expected one of " in fails("compile", add.name, "--emit", "nonsense")


@pytest.mark.parametrize("option", ["nonsense", "=1", "nonsense=1"])
def test_option_that_does_not_exist(fails: Fails, add: Path, option: str) -> None:
    assert "option" in fails("compile", add.name, "--option", option)


@pytest.mark.parametrize(
    "device", ["host[", "host{cpu=none-such}", "none-such", "cpu=@cpu2", "host{speed=3}"]
)
def test_device_that_does_not_exist(fails: Fails, add: Path, tmp_path: Path, device: str) -> None:
    assert fails("compile", add.name, "--device", device)
    assert not (tmp_path / "add.motet").exists()


def test_pass_that_does_not_exist(fails: Fails, add: Path) -> None:
    assert "no-such-pass" in fails("opt", add.name, "--pipeline", "no-such-pass")


def test_output_folder_that_does_not_exist(fails: Fails, add: Path) -> None:
    message = fails("compile", add.name, "-o", "none/x.motet")
    assert message == "none/x.motet: cannot be written: there is no folder none"


def test_output_whose_name_is_too_long(fails: Fails, add: Path) -> None:
    name = "x" * 300
    assert fails("compile", add.name, "-o", name) == f"{name}: cannot be written: file name too long"


def test_output_that_is_a_folder(fails: Fails, add: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.motet").mkdir()
    assert "folder.motet: cannot be written" in fails("compile", add.name, "-o", "folder.motet")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_output_folder_without_permission(fails: Fails, add: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "locked/x.motet: cannot be written" in fails("compile", add.name, "-o", "locked/x.motet")


# -- artifacts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "bench", "inspect"])
@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and then nothing"])
def test_file_that_is_no_artifact(fails: Fails, tmp_path: Path, command: str, content: bytes) -> None:
    (tmp_path / "x.motet").write_bytes(content)
    message = fails(command, "x.motet")
    assert message.startswith("x.motet: ") and "not an artifact" in message


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_truncated_artifact(fails: Fails, compiled: Path, tmp_path: Path, keep: float) -> None:
    data = (compiled / "add.motet").read_bytes()
    (tmp_path / "x.motet").write_bytes(data[: int(len(data) * keep)])
    assert fails("run", "x.motet", *INPUTS).startswith("x.motet: ")


def test_artifact_with_damaged_code(fails: Fails, compiled: Path, tmp_path: Path) -> None:
    data = bytearray((compiled / "add.motet").read_bytes())
    # Every object is damaged, so that it does not matter which of them this machine would run.
    position = data.find(b"\x7fELF")
    assert position > 0
    while position > 0:
        data[position + 24] ^= 0xFF
        position = data.find(b"\x7fELF", position + 1)
    (tmp_path / "x.motet").write_bytes(data)
    message = fails("run", "x.motet", *INPUTS)
    assert message.startswith("x.motet: ") and "damaged" in message


def test_zip_that_is_no_artifact(fails: Fails, tmp_path: Path, add: Path) -> None:
    shutil.make_archive(str(tmp_path / "foreign"), "zip", tmp_path, add.name)
    assert fails("run", "foreign.zip").startswith("foreign.zip: ")


# -- calls ---------------------------------------------------------------------------------------


def test_function_that_does_not_exist(fails: Fails, compiled: Path) -> None:
    message = fails("run", compiled / "rows.motet", "--function", "nonsense")
    assert "no function 'nonsense'" in message
    assert "double(" in message and "square(" in message


def test_function_must_be_chosen_where_there_are_several(fails: Fails, compiled: Path) -> None:
    assert "--function" in fails("run", compiled / "rows.motet", "--input", "6xi32=1")


@pytest.mark.parametrize("inputs", [(), ("--input", "3x5xf32=1"), INPUTS + INPUTS[:2]])
def test_wrong_number_of_inputs_shows_the_signature(
    fails: Fails, compiled: Path, inputs: tuple[str, ...]
) -> None:
    message = fails("run", compiled / "add.motet", *inputs)
    assert f"{len(inputs) // 2} inputs given, 2 expected" in message
    assert "3x5xf32" in message


@pytest.mark.parametrize("wrong", ["5x3xf32=1", "15xf32=1", "3x5xf64=1", "3x5xi32=1", "f32=1"])
def test_input_of_another_type(fails: Fails, compiled: Path, wrong: str) -> None:
    message = fails("run", compiled / "add.motet", "--input", "3x5xf32=1", "--input", wrong)
    assert "argument 1" in message


def test_bench_needs_inputs_where_extents_are_dynamic(fails: Fails, compiled: Path) -> None:
    assert "dynamic extents" in fails("bench", compiled / "rows.motet", "--function", "double")


def test_device_of_another_machine(fails: Fails, compiled: Path) -> None:
    assert "none-such" in fails("run", compiled / "add.motet", *INPUTS, "--device", "none-such")


def test_verify_needs_the_program(fails: Fails, compiled: Path) -> None:
    assert "--verify needs the program" in fails("run", compiled / "add.motet", *INPUTS, "--verify")


def test_more_expected_than_results(fails: Fails, compiled: Path) -> None:
    assert "--expected: 2 given" in fails(
        "run", compiled / "add.motet", *INPUTS, "--expected", "3x5xf32=3", "--expected", "3x5xf32=3"
    )


def test_artifact_for_another_processor_says_what_it_needs(motet: Run, fails: Fails, add: Path) -> None:
    machine = os.uname().machine
    other = "aarch64" if machine != "aarch64" else "x86-64-v3"
    assert motet("compile", add.name, "--device", f"host{{cpu={other}}}").returncode == 0
    message = fails("run", "add.motet", *INPUTS)
    assert other in message and machine in message


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="speaks of x86-64")
@pytest.mark.parametrize("highest, message", [
    ("x86-64-v2", "cpu target native: this machine"),
    ("skylake", "MOTET_MAX_CPU=skylake: no such level; expected one of x86-64-v2, x86-64-v3"),
])
def test_a_processor_below_every_level_has_no_native_code(
    fails: Fails, add: Path, monkeypatch: pytest.MonkeyPatch, highest: str, message: str
) -> None:
    monkeypatch.setenv("MOTET_MAX_CPU", highest)
    assert fails("compile", add.name, "--device", "host{cpu=native}").startswith(message)


@pytest.mark.parametrize(("words", "said"), [
    (["run"], "missing argument 'FILE'; see motet run --help"),
    (["rn", "a"], "no such command 'rn' (did you mean 'run'?); see motet --help"),
    (["--verison"], "no such option: --verison (did you mean --version?); see motet --help"),
    (["bench", "a", "--jsn"], "no such option: --jsn (did you mean --json?); see motet bench --help"),
    (["compile", "a", "-o"], "option '-o' requires an argument; see motet compile --help"),
    (["lab", "show"], "missing argument 'PROGRAM'; see motet lab show --help"),
    (["lab", "shw", "a?"], "no such command 'shw' (did you mean 'show'?); see motet lab --help"),
])
def test_a_command_line_that_cannot_be_read_is_one_line(motet: Run, words: list[str], said: str) -> None:
    outcome = motet(*words)
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (2, "", f"error: {said}\n")
