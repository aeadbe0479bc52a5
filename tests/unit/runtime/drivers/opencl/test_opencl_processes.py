"""Platforms that abort, and binaries in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.runtime.drivers.opencl.callers import caller_of
from tests.unit.runtime.drivers.opencl.opening import opencl_device

from motet.errors import DeviceLost
from motet.runtime.device import open_device
from motet.runtime.drivers.opencl import building
from motet.runtime.drivers.opencl.api import OpenClApi, OpenClError
from motet.runtime.drivers.opencl.context import Context

_CODE = b"kernel void k__1b0s(global int *x, long tasks, global uchar *scratch, long stride) { x[0] = %d; }"
_ABORTING = """
#include <stdlib.h>
void *clGetExtensionFunctionAddress(const char *name) { abort(); }
int clGetPlatformInfo(void *p, unsigned a, size_t b, void *c, void *d) { abort(); }
"""


@pytest.mark.parametrize("uri", ["opencl:0", "opencl:1"])
def test_programs_are_built_once_and_a_damaged_binary_again(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caller_of(uri) as caller:
        monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path))
        made: list[bytes] = []
        build = building.build_apart

        def noted(number: int, about: str, code: bytes, options: str) -> bytes:
            made.append(code)
            return build(number, about, code, options)

        monkeypatch.setattr("motet.runtime.drivers.opencl.binaries.build_apart", noted)

        def names(code: bytes) -> list[str]:
            context = Context(caller.api, caller.device, uri, caller.context)
            program = context.program(code, "")
            return caller.api.kernel_names(program.handle)

        for _ in range(2):
            assert names(_CODE % 1) == ["k__1b0s"]
        assert len(made) == 1
        [file] = [file for file in tmp_path.rglob("*") if file.is_file()]
        file.write_bytes(file.read_bytes()[:-7])  # the cache finds that itself
        assert names(_CODE % 1) == ["k__1b0s"] and len(made) == 2
        load = OpenClApi.program_load

        def refuse(api: OpenClApi, context: int, device: int, binary: bytes) -> int:
            monkeypatch.setattr(OpenClApi, "program_load", load)
            raise OpenClError("of an older driver")

        monkeypatch.setattr(OpenClApi, "program_load", refuse)
        assert names(_CODE % 1) == ["k__1b0s"] and len(made) == 3


def test_a_compiler_that_dies_is_an_error_of_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = opencl_device()
    device = open_device(info)
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -ABRT $$\n")
    dying.chmod(0o755)
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", str(dying))
    with pytest.raises(DeviceLost, match=r"^device opencl:0: lost: k\.cl: the platform's compiler died \(SIGABRT\)$"):
        device.load([_CODE % 2], ["k.cl"])
    device.close()


def test_a_platform_that_aborts_is_one_line(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    opencl_device()
    (tmp_path / "abort.c").write_text(_ABORTING)
    library = tmp_path / "libabort.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "abort.c"], check=True)
    (tmp_path / "abort.icd").write_text(f"{library}\n")
    environment = {  # of the loaders, some read one variable, some the other
        **os.environ, "OCL_ICD_VENDORS": str(tmp_path), "OCL_ICD_FILENAMES": str(library),
        "MOTET_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "motet", "run", "none.motet", "--device", "opencl:0"], capture_output=True, text=True,
        env=environment, check=False,
    )
    listed = subprocess.run(
        [sys.executable, "-c", "from motet.runtime.device import probe; print(probe('opencl')[0].reason)"],
        capture_output=True, text=True, check=False, env=environment,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.startswith("an OpenCL platform, asked for its devices, died (SIGABRT)")
    assert "abort.icd" in listed.stdout and listed.stdout.count("\n") == 1
