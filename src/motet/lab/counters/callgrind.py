"""The instructions of one call, counted by valgrind's callgrind.

valgrind does not run AVX-512: on such targets the count is not available. The program is exported to C, and linked with
a caller whose inputs are zero.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from motet.errors import MotetError

if TYPE_CHECKING:
    from motet.compiler.kernels.schedule import KernelSchedule
    from motet.lab.subject import KernelSubject

NAME = "valgrind"
_TOOLS = ("cc", "valgrind")
_ARGUMENT = re.compile(r"^ \*   (\w+): (?:input|result), \S+, (\d+) bytes", re.MULTILINE)
_SECONDS = 300


def counts(subject: KernelSubject, schedule: KernelSchedule, wanted: Sequence[str]) -> dict[str, float | str]:
    """The count of the kernel's functions, or why there is none."""
    if NAME not in wanted:
        return {}
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return {NAME: f"not available: {', '.join(missing)} not installed"}
    if not subject.on_host:
        return {NAME: "not available: the code is not for the host"}
    if any("avx512" in feature or "amx" in feature for feature in subject.program.target.requires):
        return {NAME: "not available: valgrind has no AVX-512; expected --device 'host{cpu=x86-64-v3}'"}
    with tempfile.TemporaryDirectory(prefix="motet-valgrind-") as folder:
        try:
            return {NAME: _count(subject, schedule, Path(folder))}
        except (MotetError, subprocess.SubprocessError) as error:
            return {NAME: f"not available: {str(error).splitlines()[0]}"}


def _count(subject: KernelSubject, schedule: KernelSchedule, folder: Path) -> float:
    from motet.exporting.c_source import export_c
    from motet.exporting.static import find_variant, make_static
    from motet.lab.subject import compile_with

    artifact = compile_with(subject, schedule)
    name = next(iter(artifact.functions))
    static = make_static(
        artifact, artifact.functions[name], find_variant(artifact, artifact.manifest.variants[0].target), {}
    )
    for file, content in export_c(static, "program").files.items():
        (folder / file).write_bytes(content)
    arguments = _ARGUMENT.findall((folder / "program.h").read_text())
    arrays = "\n".join(f"static _Alignas(64) unsigned char {each}[{size}];" for each, size in arguments)
    passed = ", ".join(f"(void *){each}" for each, _ in arguments)
    (folder / "caller.c").write_text(f'#include "program.h"\n{arrays}\nint main(void) {{ program({passed}); }}\n')
    objects = sorted(path.name for path in folder.glob("*.o"))
    _run(["cc", "-O1", "-o", "caller", "caller.c", "program.c", *objects, "-lm"], folder)
    _run(["valgrind", "--quiet", "--tool=callgrind", "--callgrind-out-file=counts", "--compress-strings=no",
          "--compress-pos=no", "--dump-line=no", "./caller"], folder)
    return float(_instructions((folder / "counts").read_text(), subject.listed.name))


def _run(words: Sequence[str], folder: Path) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise MotetError(f"{words[0]} ended with {done.returncode}: {said}")


def _instructions(profile: str, kernel: str) -> int:
    """The instructions in functions of a kernel, which are named `KERNEL` or `KERNEL.something`."""
    total, own, called = 0, False, False
    for line in profile.splitlines():
        if line.startswith("fn="):
            symbol = line[3:].partition("'")[0]
            own = symbol == kernel or symbol.startswith((f"{kernel}.", f"{kernel}_"))
        elif line.startswith("calls="):
            called = True
        elif line[:1].isdigit():
            if own and not called:
                total += int(line.split()[1])
            called = False
    return total
