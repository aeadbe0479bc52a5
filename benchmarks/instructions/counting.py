"""Counts the instructions of a program's kernels: exported to C, linked with a small caller, run under callgrind.

Only functions in the kernels' objects are counted, not the caller and the C library; all tasks run on one thread. The
code is compiled for x86-64-v3, since valgrind does not support AVX-512. It does not depend on features of the
processor, so that counts are the same on every machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from benchmarks.instructions.programs import Program

TARGET = "x86-64-v3"
TOOLS = ("cc", "valgrind")

# In the measured tree: compiles the models of a folder, exports each to C, and prints the classes of its kernels.
_CHILD = """
import json, pathlib, sys
import motet
from motet.exporting.c_source import export_c
from motet.exporting.static import find_variant, make_static
folder, target = pathlib.Path(sys.argv[1]), sys.argv[2]
for name, extents in json.loads(sys.stdin.read()).items():
    try:
        artifact = motet.compile(folder / f"{name}.onnx", cache=False, devices=f"host{{cpu={target}}}",
                                 options={"jobs": 1})
        static = make_static(artifact, artifact.functions["main"], find_variant(artifact, target), extents)
        for file, content in export_c(static, "program").files.items():
            (folder / name).mkdir(exist_ok=True)
            (folder / name / file).write_bytes(content)
        kinds = {kernel.name: kernel.kind for kernel in static.variant.kernels}
        found = {"kernels": {kernel: kinds.get(kernel, "") for kernel in static.kernels}}
    except motet.MotetError as error:
        found = {"refused": str(error)}
    print(json.dumps([name, found]), flush=True)
"""

# C expressions that draw elements of each dtype; 16-bit ones as bits, between about 1/2 and 1.
_REAL = {"f64": "real(double)", "f32": "real(float)", "f16": "bits(uint16_t, 0x3800)", "bf16": "bits(uint16_t, 0x3f00)"}
_WHOLE = {"i64": "int64_t", "i32": "int32_t", "i16": "int16_t", "i8": "int8_t", "ui64": "uint64_t", "ui32": "uint32_t",
          "ui16": "uint16_t", "ui8": "uint8_t", "i1": "uint8_t", "index": "int64_t"}
_DRAWING = """#include "program.h"
static uint32_t state_ = 1;
static uint32_t draw(void) { state_ = state_ * 1664525u + 1013904223u; return state_ >> 8; }
#define real(type) type, (type)draw() / 8388608 - 1
#define bits(type, exponent) type, (exponent | (draw() & 1) << 15 | (draw() & 0x7f))
#define whole(type, below) type, draw() % below
#define fill(to, drawn) fill_(to, drawn)
#define fill_(to, type, value) \\
    for (unsigned long i = 0; i < sizeof to / sizeof(type); i++) ((type *)to)[i] = (type)(value)"""
_ARGUMENT = re.compile(r"^ \*   (\w+): (input|result), (\S+), (\d+) bytes", re.MULTILINE)


@dataclass(frozen=True)
class Counted:
    """Instructions of each kernel, and the kernel class that generated its code."""

    kernels: Mapping[str, int]
    classes: Mapping[str, str]

    @property
    def total(self) -> int:
        return sum(self.kernels.values())


def missing_tools() -> Sequence[str]:
    """The required programs that are not installed."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def count(programs: Sequence[Program], tree: Path, folder: Path) -> Iterator[tuple[Program, Counted | str]]:
    """Each program with the counts of its kernels compiled by the source tree `tree`, or the reason for a failure."""
    for program in programs:
        onnx.save(program.model(), str(folder / f"{program.name}.onnx"))
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    given = json.dumps({program.name: dict(program.extents) for program in programs})
    done = subprocess.run([sys.executable, "-c", _CHILD, str(folder), TARGET], input=given, env=environment, cwd=tree,
                          text=True, stdout=subprocess.PIPE, check=True)
    answers = dict(json.loads(line) for line in done.stdout.splitlines())
    for program in programs:
        answer = answers[program.name]
        if "refused" in answer:
            yield program, answer["refused"]
            continue
        counts = _run(folder / program.name, program.below, answer["kernels"])
        yield program, Counted(counts, answer["kernels"])


def _run(folder: Path, below: int, kernels: Mapping[str, str]) -> dict[str, int]:
    (folder / "caller.c").write_text(_caller((folder / "program.h").read_text(), below))
    objects = sorted(path.name for path in folder.glob("*.o"))
    _command(["cc", "-O1", "-o", "caller", "caller.c", "program.c", *objects, "-lm"], folder)
    _command(["valgrind", "--quiet", "--tool=callgrind", "--callgrind-out-file=counts", "--compress-strings=no",
              "--compress-pos=no", "--dump-line=no", "./caller"], folder)
    return kernel_counts((folder / "counts").read_text(), kernels)


def kernel_counts(profile: str, kernels: Mapping[str, str]) -> dict[str, int]:
    """Instructions of each kernel, including its local functions, which are named `KERNEL.something`."""
    found = dict.fromkeys(kernels, 0)
    kernel, called = "", False
    for line in profile.splitlines():
        if line.startswith("fn="):
            symbol = line[3:].partition("'")[0]  # 'N: a recursion's depth
            kernel = next((name for name in found if symbol == name or symbol.startswith(f"{name}.")), "")
        elif line.startswith("calls="):
            called = True  # the next line counts for the callee
        elif line[:1].isdigit():
            if kernel and not called:
                found[kernel] += int(line.split()[1])
            called = False
    return found


def _caller(header: str, below: int) -> str:
    """A C program that fills the inputs with deterministic numbers and calls the function once."""
    arguments = _ARGUMENT.findall(header)
    arrays = [f"static _Alignas(64) unsigned char {name}[{size}];" for name, _, _, size in arguments]
    fills: list[str] = []
    for name, role, shape, _ in arguments:
        dtype = shape.rpartition("x")[2]
        if role == "input":
            drawn = _REAL.get(dtype) or f"whole({_WHOLE[dtype]}, {2 if dtype == 'i1' else below})"
            fills.append(f"    fill({name}, {drawn});")
    passed = ", ".join(f"(void *){name}" for name, *_ in arguments)
    body = [*fills, f"    program({passed});", "    return 0;"]
    return "\n".join([_DRAWING, *arrays, "int main(void) {", *body, "}", ""])


def _command(words: Sequence[str], folder: Path) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise SystemExit(f"error: {folder.name}: {words[0]} ended with {done.returncode}: {said}")
