"""Compiles SPIR-V to the machine code of an Intel GPU by Intel's offline compiler: its library, in this process and in
memory, else its program.

Debian's package intel-opencl-icd has both, and so has Intel's compute runtime. The compiler needs no GPU. It accepts
flags that it does not know, and flags that a device cannot honour: only the binary tells how many registers a kernel
has. Reference: `ocloc compile --help`, and `ocloc_api.h` of Intel's compute runtime.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_uint8, c_uint32, c_uint64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.compiler.codegen.triton.compile.zebin import missing_functions

INSTALL = "apt install intel-opencl-icd, or put the library libocloc.so or the program ocloc of Intel's compute " \
    "runtime on the path"
_LIBRARIES = ("libocloc.so", "libocloc.so.1")
_SPILLED = re.compile(r"kernel (\S+)\s+compiled SIMD\d+ allocated (\d+) regs and spilled around (\d+)")
_FILE, _SOURCE, _MADE, _LOG = "k.spv", "k.cl", "k", "stdout.log"
_NOISE = ("Compilation from IR", "Build succeeded", "Command was", "warning:")


class CompilerFailure(Exception):
    """The compiler did not make code; the message is the first line of its log that says why."""


# A 2-D block load; the compiler does not know its functions before 2023, and then leaves a call of nothing.
_BLOCK_LOAD = b"""
void intel_sub_group_2d_block_read_16b_8r16x1c(global void *, int, int, int, int2, private ushort *);
__attribute__((intel_reqd_sub_group_size(16))) kernel void load(global void *p, global ushort *q) {
  ushort x[8];
  intel_sub_group_2d_block_read_16b_8r16x1c(p, 64, 8, 64, (int2)(0, 0), x);
  for (int i = 0; i < 8; i++) q[i * 16 + get_local_id(0)] = x[i];
}
"""
# A product of tf32 operands by the matrix engine, likewise.
_TF32 = b"""
__attribute__((overloadable)) float4 intel_sub_group_tf32_tf32_matrix_mad_k8(float4, float8, float4);
__attribute__((intel_reqd_sub_group_size(16))) kernel void multiply(global float4 *a, global float8 *b) {
  int i = get_local_id(0);
  a[i] = intel_sub_group_tf32_tf32_matrix_mad_k8(a[i], b[i], a[i]);
}
"""


@dataclass(frozen=True)
class OfflineBuild:
    """A zebin, and the number of registers that each kernel spilled, as the log states it."""

    zebin: bytes
    spilled: dict[str, int]


def command(device: str, flags: str, file: str = _FILE) -> list[str]:
    """The command line that compiles `file`, SPIR-V or OpenCL C, into a zebin of the name `k` in the current folder."""
    kind = ["-spirv_input"] if file == _FILE else []
    options = ["-options", flags] if flags else []
    return [
        "ocloc", "compile", "-file", file, *kind, "-device", device, "--format", "zebin", "-output_no_suffix",
        "-output", _MADE, *options,
    ]


def compile_spirv(spirv: bytes, device: str, flags: str) -> OfflineBuild:
    """Raises CompilerFailure, also if there is no compiler."""
    return _compile(spirv, _FILE, device, flags)


def compile_source(source: bytes, device: str, flags: str) -> OfflineBuild:
    """The same for OpenCL C."""
    return _compile(source + b"\0", _SOURCE, device, flags)  # the library reads up to the end of a string


@functools.cache
def has_block_loads(device: str) -> bool:
    """Whether the compiler knows 2-D block loads, which it is asked by compiling one."""
    return _compiles(_BLOCK_LOAD, device)


@functools.cache
def has_tf32(device: str) -> bool:
    """The same for products of tf32 operands."""
    return _compiles(_TF32, device)


def _compiles(source: bytes, device: str) -> bool:
    try:
        compile_source(source, device, "")
    except CompilerFailure:
        return False
    return True


def _compile(code: bytes, file: str, device: str, flags: str) -> OfflineBuild:
    arguments = command(device, flags, file)
    library = _library()
    if library is not None:
        status, made = _invoke(library, arguments, code, file)
    elif shutil.which("ocloc"):
        status, made = _run(arguments, code, file)
    else:
        raise CompilerFailure(f"no offline compiler for Intel's GPUs; {INSTALL}")
    log = made.get(_LOG, b"").decode(errors="replace")
    if status or _MADE not in made:
        raise CompilerFailure(_reason(log, status))
    try:
        missing = missing_functions(made[_MADE])
    except ValueError as error:
        raise CompilerFailure(str(error)) from error
    if missing:
        raise CompilerFailure(f"it does not know the function {missing[0]}")
    return OfflineBuild(made[_MADE], {name: int(count) for name, _, count in _SPILLED.findall(log)})


def is_available() -> bool:
    return _library() is not None or shutil.which("ocloc") is not None


@functools.cache
def version() -> str:
    """The compiler's name and version, as far as it states it."""
    library = _library()
    if library is None:
        return "ocloc"
    status, made = _invoke(library, ["ocloc", "query", "OCL_DRIVER_VERSION"], b"")
    found = made.get("OCL_DRIVER_VERSION", b"").decode(errors="replace").strip("\0 \n") if not status else ""
    return f"libocloc {found}".strip()


@functools.cache
def _library() -> Any:
    """The library; None if there is none."""
    for name in _LIBRARIES:
        try:
            found = ctypes.CDLL(name)
        except OSError:
            continue
        found.oclocInvoke.restype = ctypes.c_int
        return found
    return None


def _invoke(
    library: Any, arguments: Sequence[str], code: bytes, file: str = _FILE
) -> tuple[int, dict[str, bytes]]:
    """The status and the files that the library made, by their names."""
    count = 1 if code else 0
    content = ctypes.create_string_buffer(code, len(code) or 1)
    given = (c_char_p * len(arguments))(*(argument.encode() for argument in arguments))
    sources = (POINTER(c_uint8) * 1)(ctypes.cast(content, POINTER(c_uint8)))
    lengths, names = (c_uint64 * 1)(len(code)), (c_char_p * 1)(file.encode())
    outputs = c_uint32()
    data, sizes, titles = POINTER(POINTER(c_uint8))(), POINTER(c_uint64)(), POINTER(c_char_p)()
    places = tuple(ctypes.byref(each) for each in (outputs, data, sizes, titles))
    status = library.oclocInvoke(len(given), given, count, sources, lengths, names, 0, None, None, None, *places)
    made = {
        (titles[i] or b"").decode(): ctypes.string_at(data[i], sizes[i]) for i in range(outputs.value)
    }
    library.oclocFreeOutput(*places)
    return int(status), made


def _run(arguments: Sequence[str], code: bytes, file: str) -> tuple[int, dict[str, bytes]]:
    """Like `_invoke`, by the program."""
    with tempfile.TemporaryDirectory(prefix="motet-ocloc-") as name:
        folder = Path(name)
        (folder / file).write_bytes(code)
        done = subprocess.run(
            [*arguments, "-out_dir", name], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            stdin=subprocess.DEVNULL,
        )
        made = {_LOG: done.stdout}
        if (folder / _MADE).exists():
            made[_MADE] = (folder / _MADE).read_bytes()
        return done.returncode, made


def _reason(log: str, status: int) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.strip().startswith(_NOISE)]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [f"status {status}, without a word"])[0]
