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

INSTALL = "apt install intel-opencl-icd, or put the library libocloc.so or the program ocloc of Intel's compute " \
    "runtime on the path"
_LIBRARIES = ("libocloc.so", "libocloc.so.1")
_SPILLED = re.compile(r"kernel (\S+)\s+compiled SIMD\d+ allocated (\d+) regs and spilled around (\d+)")
_FILE, _MADE, _LOG = "k.spv", "k", "stdout.log"
_NOISE = ("Compilation from IR", "Build succeeded", "Command was", "warning:")


class CompilerFailure(Exception):
    """The compiler did not make code; the message is the first line of its log that says why."""


@dataclass(frozen=True)
class Built:
    """A zebin, and the number of registers that each kernel spilled, as the log states it."""

    zebin: bytes
    spilled: dict[str, int]


def command(device: str, flags: str, file: str = _FILE) -> list[str]:
    """The command line that compiles `file`, SPIR-V, into a zebin of the name `k` in the current folder."""
    options = ["-options", flags] if flags else []
    return [
        "ocloc", "compile", "-file", file, "-spirv_input", "-device", device, "--format", "zebin",
        "-output_no_suffix", "-output", _MADE, *options,
    ]


def compile_spirv(spirv: bytes, device: str, flags: str) -> Built:
    """Raises CompilerFailure, also if there is no compiler."""
    arguments = command(device, flags)
    library = _library()
    if library is not None:
        status, made = _invoke(library, arguments, spirv)
    elif shutil.which("ocloc"):
        status, made = _run(arguments, spirv)
    else:
        raise CompilerFailure(f"no offline compiler for Intel's GPUs; {INSTALL}")
    log = made.get(_LOG, b"").decode(errors="replace")
    if status or _MADE not in made:
        raise CompilerFailure(_reason(log, status))
    return Built(made[_MADE], {name: int(count) for name, _, count in _SPILLED.findall(log)})


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


def _invoke(library: Any, arguments: Sequence[str], spirv: bytes) -> tuple[int, dict[str, bytes]]:
    """The status and the files that the library made, by their names."""
    count = 1 if spirv else 0
    content = ctypes.create_string_buffer(spirv, len(spirv) or 1)
    given = (c_char_p * len(arguments))(*(argument.encode() for argument in arguments))
    sources = (POINTER(c_uint8) * 1)(ctypes.cast(content, POINTER(c_uint8)))
    lengths, names = (c_uint64 * 1)(len(spirv)), (c_char_p * 1)(_FILE.encode())
    outputs = c_uint32()
    data, sizes, titles = POINTER(POINTER(c_uint8))(), POINTER(c_uint64)(), POINTER(c_char_p)()
    places = tuple(ctypes.byref(each) for each in (outputs, data, sizes, titles))
    status = library.oclocInvoke(len(given), given, count, sources, lengths, names, 0, None, None, None, *places)
    made = {
        (titles[i] or b"").decode(): ctypes.string_at(data[i], sizes[i]) for i in range(outputs.value)
    }
    library.oclocFreeOutput(*places)
    return int(status), made


def _run(arguments: Sequence[str], spirv: bytes) -> tuple[int, dict[str, bytes]]:
    """Like `_invoke`, by the program."""
    with tempfile.TemporaryDirectory(prefix="motet-ocloc-") as name:
        folder = Path(name)
        (folder / _FILE).write_bytes(spirv)
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
