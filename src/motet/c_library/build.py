"""Builds the library for programs in C: `motet.h` and `libmotet.so`, with the compiler of the system.

The library loads artifacts and calls the executor of the host's driver, whose object becomes part of it. What its
sources share with the package (the executor's layout, element types, names of processors' features) is written to a
header when it is built.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path

from motet.artifact.dtypes import DTYPES, SAFETENSORS_NAMES
from motet.artifact.files import unwritable
from motet.artifact.schema import SCHEMA_VERSION, STATUS_BYTES
from motet.cpu_features import X86_NAMES
from motet.errors import OptionError
from motet.runtime.drivers.host import layout
from motet.runtime.drivers.host.threads import support_object
from motet.version import VERSION

HEADER, LIBRARY = "motet.h", "libmotet.so"
MACHINE = "x86_64"
_FOLDER = Path(__file__).parent
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
_LIBRARIES = ("-Wl,--no-as-needed", "-lm", "-lgcc_s", "-ldl")  # which the code of artifacts may call


def build_library(folder: Path, compiler: str = "cc", flags: Sequence[str] = ()) -> Path:
    """Writes the header and the library to `folder`, made by `compiler`, a command, with further `flags`; returns the
    library's path. Raises OptionError."""
    command = shlex.split(compiler)
    if not command or shutil.which(command[0]) is None:
        raise OptionError(f"--cc {compiler}: no such compiler; install one, such as gcc or clang")
    machine = _run([*command, "-dumpmachine"], compiler).split("-")[0]
    if machine != MACHINE:
        raise OptionError(f"--cc {compiler}: compiles for {machine}; the library is for {MACHINE}")
    library = folder / LIBRARY
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(_FOLDER / HEADER, folder / HEADER)
    except OSError as error:
        raise OptionError(unwritable(folder, error)) from error
    with tempfile.TemporaryDirectory(prefix="motet-") as made:
        (Path(made) / "constants.h").write_text(constants(), encoding="utf-8")
        sources = sorted(map(str, _FOLDER.glob("*.c")))
        executor = f'-DMOTET_EXECUTOR="{support_object(MACHINE)}"'
        _run([*command, *_FLAGS, executor, f"-I{made}", f"-I{_FOLDER}", *flags, "-o", str(library), *sources,
              *_LIBRARIES], compiler)
    return library


def constants() -> str:
    """The header that the sources share with the package."""
    return "\n".join(f"#define {name} {value}" for name, value in _constants()) + "\n"


def _constants() -> Iterator[tuple[str, object]]:
    yield "MOTET_VERSION", f'"{VERSION}"'
    yield from (("SCHEMA_VERSION", SCHEMA_VERSION), ("STATUS_BYTES", STATUS_BYTES), ("SUBMITTERS", layout.SUBMITTERS))
    tables: tuple[type[IntEnum], ...] = (
        layout.PoolLayout, layout.LaneLayout, layout.ProgramLayout, layout.CommandLayout
    )
    for table in tables:
        prefix = table.__name__.removesuffix("Layout").upper()
        yield from ((f"{prefix}_{name}", int(value)) for name, value in table.__members__.items())
    rows: list[str] = []
    for name, dtype in DTYPES.items():
        stored = f'"{SAFETENSORS_NAMES[dtype]}"' if dtype in SAFETENSORS_NAMES else "NULL"
        rows.append(f'{{"{name}", {dtype.itemsize}, {dtype.alignment}, {stored}}}')
    yield "MOTET_DTYPES", ", ".join(rows)
    yield "MOTET_FEATURE_NAMES", ", ".join(f'{{"{linux}", "{llvm}"}}' for linux, llvm in X86_NAMES.items())


def _run(command: Sequence[str], compiler: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode:
        reasons = [line for line in result.stderr.splitlines() if "error" in line] or result.stderr.splitlines()
        raise OptionError(f"--cc {compiler}: failed: {reasons[0] if reasons else f'status {result.returncode}'}")
    return result.stdout.strip()
