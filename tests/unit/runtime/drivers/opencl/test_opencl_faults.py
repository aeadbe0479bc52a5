"""Platforms whose compilers abort, hang, or answer nothing: a fake one (`fake_opencl.c`), on any processor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import motet
from motet import builder as mb

TARGETS = {16: "opencl-c-512", 8: "opencl-c", 4: "opencl-c-128", 1: "opencl-c-scalar"}
# The environment of Python has the fake platform, also for the processes that build.
_SITE = "import pathlib, sys\nsys.prefix = str(pathlib.Path(__file__).parent)\n"
_OPEN = """
import json, os, sys, motet
from motet.errors import MotetError
found = {"process": os.getpid()}
try:
    with motet.load(sys.argv[1], devices="opencl:0") as session:
        found |= {"targets": [variant.target for variant in session.variants], "notes": list(session.notes)}
except MotetError as error:
    found |= {"error": f"{type(error).__name__}: {error}"}
print(json.dumps(found))
"""


@dataclass
class Fake:
    """The platform in `folder`."""

    folder: Path

    def open(
        self, artifact: Path, behaviour: Mapping[str, str] | None = None, seconds: int = 60,
        environment: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """What a new process finds that loads `artifact`, where the compiler has `behaviour`; the lanes of the programs
        that were built are added."""
        log = self.folder / "log"
        log.write_text("")
        found = json.loads(self.python("-c", _OPEN, str(artifact), behaviour=behaviour, seconds=seconds,
                                       environment=environment))
        builds = [[int(word) for word in line.split()] for line in log.read_text().splitlines()]
        assert found.pop("process") not in [process for process, _ in builds]
        return {**found, "built": [lanes for _, lanes in builds]}

    def python(
        self, *arguments: str, behaviour: Mapping[str, str] | None = None, seconds: int = 60,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """The output of a process whose only platform is this one."""
        return subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=120,
            env={
                **os.environ, **{f"FAKE_OPENCL_{name}": how for name, how in (behaviour or {}).items()},
                "PYTHONPATH": os.pathsep.join([str(self.folder), *sys.path]),
                "FAKE_OPENCL_LOG": str(self.folder / "log"),
                "MOTET_CACHE_DIR": str(self.folder / "cache"), "MOTET_OPENCL_SECONDS": str(seconds),
                **(environment or {}),
            },
        ).stdout


@pytest.fixture
def fake(library: Path, tmp_path: Path) -> Fake:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libOpenCL.so.1").symlink_to(library)
    (tmp_path / "sitecustomize.py").write_text(_SITE)
    return Fake(tmp_path)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("fake") / "libOpenCL.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, Path(__file__).parent / "fake_opencl.c"], check=True)
    return made


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with code of each width."""
    with mb.Graph("main") as g:
        g.result(mb.exp(g.input("x", ("batch", 7))))
    path = tmp_path_factory.mktemp("artifact") / "exp.motet"
    motet.compile(g, devices=f"opencl{{cpu={'+'.join(TARGETS.values())}}}").save(path)
    return path


def test_the_widest_code_is_taken_and_built_once(fake: Fake, artifact: Path) -> None:
    assert fake.open(artifact) == {"targets": ["opencl-c-512"], "notes": [], "built": [1, 16, 16]}
    assert fake.open(artifact)["built"] == []


@pytest.mark.parametrize(("behaviour", "target"), [({}, "opencl-c-512"), ({"16": "abort"}, "opencl-c")], ids=str)
def test_dry_runs_and_the_lab_name_the_code_that_the_platform_takes(
    fake: Fake, tmp_path: Path, behaviour: Mapping[str, str], target: str
) -> None:
    with mb.Graph("main") as g:
        g.result(mb.exp(g.input("x", (7,))))
    motet.compile(g, devices="opencl").save(tmp_path / "all.motet")  # SPIR-V, which it does not take, is first
    shown = fake.python("-m", "motet", "run", str(tmp_path / "all.motet"), "--dry-run", behaviour=behaviour)
    assert shown.endswith(f", code for {target}\n")
    shown = fake.python("-m", "motet", "lab", "show", "matmul:7x5x3xf32", "--device", "opencl:0", behaviour=behaviour)
    assert f" for opencl:{target}, on opencl:0\n" in shown


@pytest.mark.parametrize("how, said", [
    ("abort", "the platform's compiler died (SIGABRT): LLVM ERROR: Cannot select: FAKE_OPENCL_16"),
    ("exit", "the platform's compiler ended its process without an answer (0)"),
    ("empty", "the platform's compiler built a program without kernels"),
    ("reject", "clBuildProgram failed: CL_BUILD_PROGRAM_FAILURE (-11): 1:1: error: no vectors of 16 lanes"),
])  # fmt: skip
def test_a_width_that_fails_is_narrowed_with_a_note_and_remembered(
    fake: Fake, artifact: Path, how: str, said: str
) -> None:
    first = fake.open(artifact, {"16": how})
    assert first["targets"] == ["opencl-c"] and first["built"] == [1, 16, 8, 8]
    assert first["notes"] == [
        f"opencl:0: code for opencl-c, because its compiler does not build vectors of 16 floats: {said}"
    ]
    assert fake.open(artifact, {"16": how}) == {**first, "built": []}


@pytest.mark.parametrize("lanes", [4, 1])
def test_every_wider_code_is_tried(fake: Fake, artifact: Path, lanes: int) -> None:
    wider = [each for each in TARGETS if each > lanes]
    found = fake.open(artifact, {str(each): "abort" for each in wider})
    assert found["targets"] == [TARGETS[lanes]] and set(found["built"]) == {1, *wider, lanes}
    assert all(f"vectors of {each} floats: the platform's compiler died" in found["notes"][0] for each in wider)


def test_a_compiler_that_hangs_ends_with_its_processes_in_time(fake: Fake, artifact: Path) -> None:
    begin = time.monotonic()
    found = fake.open(artifact, {"16": "hang"}, seconds=6)
    assert found["targets"] == ["opencl-c"] and time.monotonic() - begin < 30
    assert "the platform's compiler had not ended after 6 seconds" in found["notes"][0]
    again = fake.open(artifact, {"16": "hang"}, seconds=6)
    assert again["built"] == [] and again["notes"] == found["notes"]
    assert fake.open(artifact, seconds=60)["targets"] == ["opencl-c-512"]  # another limit is another question


def test_a_program_at_which_the_compiler_dies_is_narrowed_although_the_trials_went_well(
    fake: Fake, artifact: Path
) -> None:
    first = fake.open(artifact, {"TRIALS": "build", "16": "abort", "8": "empty"})
    assert first["targets"] == ["opencl-c-128"] and first["built"] == [1, 16, 16, 8, 8, 4, 4]
    [note] = first["notes"]
    assert "Cannot select: FAKE_OPENCL_16" in note and "built a program without kernels" in note
    assert fake.open(artifact) == {**first, "built": []}


def test_the_narrowest_code_that_fails_is_an_error_with_the_platform_s_text(fake: Fake, artifact: Path) -> None:
    found = fake.open(artifact, {"TRIALS": "build", "16": "exit", "8": "exit", "4": "exit", "1": "reject"})
    assert "DeviceError" in found["error"] and "opencl-c-scalar: " in found["error"]
    assert "1:1: error: no vectors of 1 lanes" in found["error"]
    assert fake.open(artifact)["targets"] == ["opencl-c-512"]  # what failed throughout is asked again


def test_a_platform_that_builds_no_program_is_not_available(fake: Fake, artifact: Path) -> None:
    found = fake.open(artifact, {"1": "abort"})
    assert found["error"].startswith("DeviceError: device opencl:0: ")
    assert "its compiler builds no program: the platform's compiler died (SIGABRT): LLVM ERROR" in found["error"]
    assert found["built"] == [1]


def test_devices_that_cannot_be_used_are_listed_last_with_the_reason(fake: Fake, artifact: Path) -> None:
    listed = json.loads(fake.python("-m", "motet", "devices", "--json", behaviour={"LOST": "1"}))
    rows = [(each["uri"], each["available"], each["reason"]) for each in listed if each["family"] == "opencl"]
    reason = "Lost processor (Fake OpenCL): its platform says that it is not available"
    assert rows == [("opencl:0", True, ""), ("opencl:1", False, reason)]
    assert fake.open(artifact, {"LOST": "1"})["targets"] == ["opencl-c-512"]


def test_a_trial_is_made_again_where_a_linker_was_installed(fake: Fake, artifact: Path, tmp_path: Path) -> None:
    assert fake.open(artifact, {"1": "abort"})["built"] == [1]
    assert fake.open(artifact, {"1": "abort"})["built"] == []
    (tmp_path / "ld").write_text("#!/bin/sh\n")
    (tmp_path / "ld").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    assert fake.open(artifact, environment={"PATH": path})["targets"] == ["opencl-c-512"]


@pytest.mark.parametrize("how, said", [
    ("abort", "died (SIGABRT): LLVM ERROR: Cannot select: FAKE_OPENCL_LIST"),
    ("exit", "ended its process without an answer (0)"), ("hang", "had not ended after 6 seconds"),
])  # fmt: skip
def test_a_platform_that_cannot_list_its_devices_is_one_error(
    fake: Fake, artifact: Path, how: str, said: str
) -> None:
    found = fake.open(artifact, {"LIST": how}, seconds=6)
    assert f"an OpenCL platform, asked for its devices, {said}; expected one of these removed" in found["error"]
    assert fake.open(artifact)["targets"] == ["opencl-c-512"]
