"""What goes through the compiler before there is a job leaves it as it was."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

import motet
from motet.compiler.job import Job
from motet.compiler.process import warm_up as rehearsal
from motet.compiler.process.client import may_be_onnx

PROGRAM = """
func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
  %y = math.absf %x : tensor<5xf32>
  return %y : tensor<5xf32>
}
"""


@pytest.mark.parametrize("rehearse", [rehearsal.rehearse, rehearsal.rehearse_onnx])
def test_a_rehearsal_leaves_no_thread_behind(rehearse):
    if rehearse is rehearsal.rehearse_onnx:
        pytest.importorskip("onnx")
    before = set(threading.enumerate())  # threads of earlier tests, which may end meanwhile
    rehearse.__wrapped__()
    gc.collect()
    assert set(threading.enumerate()) <= before


def test_programs_are_compiled_as_ever_after_it():
    x = np.array([-1, 2, np.inf, -np.inf, -0.0], np.float32)
    for _ in range(2):  # the second time by a process in which the first one was rehearsed
        session = motet.load(motet.compile(PROGRAM, devices="host", cache=False))
        np.testing.assert_array_equal(session(x), np.abs(x))


@pytest.mark.parametrize(("source", "text", "format", "expected"), [
    (b"\x08\x07\x12", False, "auto", True),
    (b"func.func", True, "auto", False),
    (b"ML\xefR", False, "auto", False),
    (None, False, "auto", True),
    (b"anything", False, "onnx", True),
])
def test_onnx_is_known_by_its_first_byte(source, text, format, expected):
    job = Job("compile", "file", source, text, format)
    assert may_be_onnx(job) is expected


LATER_JOB = """
import sys
from motet.compiler.ir._mlir import ir
from motet.compiler.process.prefork import load_compiler
from motet.compiler.process.warm_up import rehearse

load_compiler()
rehearse()
known = set(sys.modules)

from motet.compiler import pipeline
from motet.compiler.frontends.mlir import load_mlir
from motet.compiler.targets.cpu import X86_64_V3

program = load_mlir(sys.argv[1], "job")
pipeline.prepare(program)
with program.module.context, ir.Location.unknown():
    pipeline.build(program, [X86_64_V3], 1, lambda what, fraction: None)
print(*sorted(name for name in set(sys.modules) - known if name.startswith("motet.compiler.")))
"""


def test_later_jobs_import_little_more_of_the_compiler():
    done = subprocess.run([sys.executable, "-c", LATER_JOB, PROGRAM], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert len(imported) <= 6, imported
    assert not any(name.startswith(("motet.compiler.codegen", "motet.compiler.passes")) for name in imported)
