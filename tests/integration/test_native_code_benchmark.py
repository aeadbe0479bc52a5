"""The benchmark of loading kernels: a cell without a number says why, and keeps no other from its number."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import native_code

from motet.compiler.codegen.triton.compile import ocloc


def test_a_cell_is_a_number_or_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers = iter([3.25, "clBuildProgram failed", 2.0, "clBuildProgram failed", "no device", 7.0])

    def measured(folder: Path, kind: str, count: int, environment: dict[str, str]) -> float | str:
        return next(answers)

    monkeypatch.setattr(native_code, "_measured", measured)
    known = {"zebin": "no zebin: the platform is a processor"}
    cells = native_code._cells(tmp_path, 1, 2, {}, known)
    assert cells == ["no zebin: the platform is a processor", "2.0", "clBuildProgram failed"]
    assert native_code._cells(tmp_path, 1, 1, {}, known) == [known["zebin"], "no device", "7.0"]


def test_a_process_that_fails_is_a_reason(tmp_path: Path) -> None:
    environment = {"PLATFORM": "of nobody", "INSTALL": "`make intel`", "OCL_ICD_VENDORS": str(tmp_path)}
    reason = native_code._measured(tmp_path, "source", 1, environment)
    assert reason == "platform not installed: `make intel`" or str(reason).startswith("no OpenCL loader")
    assert native_code._short("x" * 100) == "x" * 59 + "…"


def test_without_the_offline_compiler_the_source_remains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ocloc, "is_available", lambda: False)
    reason = "no offline compiler: apt install intel-opencl-icd"
    assert native_code._write(tmp_path, 2, "pvc") == {"zebin": reason, "SPIR-V": reason}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0.source", "1.source"]
