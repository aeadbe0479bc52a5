"""Forms of GPU kernels chosen by what was measured, from the outside, without a GPU."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Run, run_motet
from tests.unit.compiler.codegen.triton.texts import product

from motet.artifact.candidates import INDEX, read_index
from motet.artifact.library import Algorithm, read_call
from motet.artifact.reader import Artifact
from motet.artifact.tunings import Tuning, Tunings, read_tunings

pytestmark = pytest.mark.usefixtures("all_levels")

DEVICE = "cuda{arch=sm_80}"
PROGRAM = product(96, 72, 40, "f16", "f32")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "product.mlir"
    path.write_text(PROGRAM)
    return path


def compile_with(motet: Run, program: Path, output: str, *options: str) -> Artifact:
    given = [word for option in options for word in ("--option", option)]
    run = motet("compile", program, "--device", DEVICE, "-o", output, "--no-cache", *given)
    assert run.returncode == 0, run.stderr
    return Artifact.open(program.parent / output)


@pytest.fixture(scope="module")
def made(all_levels: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with artifacts of the program: one without candidates, one with them."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "product.mlir").write_text(PROGRAM)
    run = functools.partial(run_motet, folder=folder)
    compile_with(run, folder / "product.mlir", "plain.motet")
    compile_with(run, folder / "product.mlir", "several.motet", "tune=candidates")
    return folder


def test_candidates_are_kept_and_tunings_choose_among_them(motet: Run, made: Path, tmp_path: Path) -> None:
    plain, several = (Artifact.open(made / name) for name in ("plain.motet", "several.motet"))
    assert INDEX not in plain.manifest.members
    (kernel,) = read_index(several)
    labels = [candidate.label for candidate in kernel.candidates]
    assert len(set(labels)) == len(labels) > 2
    # The first is what is compiled without asking, so that the artifact runs as it would.
    for name in plain.manifest.variants[0].objects:
        assert bytes(plain.member(name)) == bytes(several.member(name))
    wanted = kernel.candidates[-1]
    measured = Tuning(kernel.key, f"{kernel.family}:{kernel.target}", "a GPU", wanted.label)
    Tunings((measured,)).write(tmp_path / "tunings.json")
    tuned = compile_with(motet, made / "product.mlir", str(tmp_path / "tuned.motet"), "tuning=tunings.json")
    source = next(name for name in wanted.members if name.endswith(".py"))
    own = next(name for name in kernel.candidates[0].members if name.endswith(".py"))
    assert bytes(tuned.member(own)) == bytes(several.member(source)) != bytes(plain.member(own))
    (command,) = tuned.manifest.variants[0].schedules["main"].commands
    assert command.tasks == wanted.tasks


@pytest.mark.slow
def test_a_form_that_is_not_made_any_more_is_passed_over(motet: Run, program: Path) -> None:
    plain = compile_with(motet, program, "plain.motet")
    (kernel,) = read_index(compile_with(motet, program, "several.motet", "tune=candidates"))
    Tunings((Tuning(kernel.key, "cuda:sm_80", "a GPU", "of long ago"),)).write(program.parent / "tunings.json")
    tuned = compile_with(motet, program, "tuned.motet", "tuning=tunings.json")
    assert dict(tuned.manifest.members) == dict(plain.manifest.members)


@pytest.mark.slow
def test_equal_kernels_of_other_programs_have_equal_names(motet: Run, program: Path) -> None:
    (one,) = read_index(compile_with(motet, program, "one.motet", "tune=candidates"))
    program.write_text("// another file\n" + product(96, 72, 40, "f16", "f32"))
    (other,) = read_index(compile_with(motet, program, "other.motet", "tune=candidates"))
    program.write_text(product(96, 72, 48, "f16", "f32"))
    (third,) = read_index(compile_with(motet, program, "third.motet", "tune=candidates"))
    assert one.key == other.key != third.key


def test_mistakes_are_one_error_each(fails: Callable[..., str], program: Path, made: Path) -> None:
    for name in ("plain.motet", "several.motet"):
        shutil.copy(made / name, program.parent)
    assert "what is to become of the measurements? expected -o FILE" in fails("tune", "several.motet")
    assert "it has one form of each kernel" in fails("tune", "plain.motet", "-o", "t.json")
    assert "device cuda:0" in fails("tune", "several.motet", "-o", "t.json", "--device", "cuda:0")
    assert "runs none of the code" in fails("tune", "several.motet", "-o", "t.json", "--device", "null")
    assert not (program.parent / "t.json").exists()
    (program.parent / "t.json").write_text(json.dumps({"motet_tunings": 7, "kernels": []}))
    assert "t.json: tunings of version 7; expected 1" in fails("tune", "several.motet", "-o", "t.json")
    compile_ = ("compile", program, "--device", DEVICE, "--no-cache")
    assert "option tune=best: expected off, candidates or measure" in fails(*compile_, "--option", "tune=best")
    assert "option tuning=none.json: cannot be read: no such file" in fails(*compile_, "--option", "tuning=none.json")
    assert "tunings of version 7" in fails(*compile_, "--option", "tuning=t.json")
    assert "option tune=measure: no device of cuda is here" in fails(*compile_, "--option", "tune=measure")


def test_measuring_on_the_host_changes_nothing(motet: Run, program: Path) -> None:
    run = motet("compile", program, "-o", "host.motet", "--no-cache", "--option", "tune=measure", "--option",
                "tuning=t.json")
    assert run.returncode == 0, run.stderr
    assert read_tunings(program.parent / "t.json").kernels == ()


def test_the_command_explains_itself(motet: Run) -> None:
    run = motet("tune", "--help")
    assert run.returncode == 0
    assert "--option tune=candidates" in run.stdout and "--prune" in run.stdout


def descriptions(artifact: Artifact) -> list[dict[str, Any]]:
    names = [name for name in artifact.manifest.variants[0].objects if name.endswith(".json")]
    return [json.loads(bytes(artifact.member(name))) for name in names]


@pytest.mark.slow
def test_a_library_is_offered_and_taken_where_it_was_measured_or_asked_for(motet: Run, program: Path) -> None:
    several = compile_with(motet, program, "several.motet", "tune=candidates")
    (kernel,) = read_index(several)
    assert kernel.library is not None and kernel.library.activation == "relu" and kernel.library.bias is not None
    assert "library" not in descriptions(several)[0]
    (none,) = read_index(compile_with(motet, program, "none.motet", "tune=candidates", "library=none"))
    assert none.library is None
    (asked,) = descriptions(compile_with(motet, program, "asked.motet", "library=cublaslt"))
    assert read_call(asked["library"], 4) == kernel.library
    algorithm = Algorithm(130100, "0b" * 64, 256)
    measured = Tuning(kernel.key, f"{kernel.family}:{kernel.target}", "a GPU", kernel.candidates[-1].label,
                      library=algorithm)
    Tunings((measured,)).write(program.parent / "tunings.json")
    tuned = compile_with(motet, program, "tuned.motet", "tuning=tunings.json")
    assert read_call(descriptions(tuned)[0]["library"], 4).algorithm == algorithm
    own = next(name for name in kernel.candidates[-1].members if name.endswith(".py"))
    behind = next(name for name in kernel.candidates[0].members if name.endswith(".py"))
    assert bytes(tuned.member(behind)) == bytes(several.member(own))
    (refused,) = descriptions(compile_with(motet, program, "refused.motet", "tuning=tunings.json", "library=none"))
    assert "library" not in refused


def test_inspect_says_what_a_library_takes_the_place_of(motet: Run, fails: Callable[..., str], program: Path) -> None:
    compile_with(motet, program, "asked.motet", "library=cublaslt")
    shown = motet("inspect", "asked.motet").stdout
    assert "cuBLASLt before" in shown and "96×72×40 f16, sums of f32" in shown and "product + bias, relu" in shown
    assert "where it is not installed, the generated kernels run" in shown
    (variant,) = json.loads(motet("inspect", "asked.motet", "--json").stdout)["variants"]
    assert [launch["library"]["name"] for launch in variant["launches"]] == ["cublaslt"]
    words = fails("compile", program, "--device", DEVICE, "--no-cache", "--option", "library=mkl")
    assert "option library=mkl: expected tuned, cublaslt or none" in words
