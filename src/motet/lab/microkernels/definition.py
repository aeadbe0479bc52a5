"""Reads the file of a microkernel.

    meaning: C[i, j] += A[i, k] * B[k, j]
    operands: {A: f32, B: f32, C: f32}
    sizes: {i: 4, j: 16}                     other dimensions have any extent
    code: product4x16.c                      or LLVM IR (.ll), or an artifact (.motet)
    symbol: product4x16                      by default the name, which is by default that of the file
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from motet.compiler.kernels.microkernel import MicroMeaning, read_meaning
from motet.compiler.schedule_text.plain import Plain, read_plain
from motet.errors import OptionError

_KEYS = ("name", "meaning", "operands", "sizes", "code", "symbol", "kernel", "compiler", "flags")
_KINDS = (".c", ".ll", ".motet")


@dataclass(frozen=True)
class MicrokernelFile:
    """What the file at `path` says. `kernel` is that of an artifact; `compiler` is a command, and `flags` are added to
    those of the target."""

    path: Path
    name: str
    meaning: str
    dtypes: dict[str, str]
    sizes: dict[str, int]
    code: Path
    symbol: str
    kernel: str = ""
    compiler: str = ""
    flags: tuple[str, ...] = ()

    @property
    def parsed(self) -> MicroMeaning:
        return read_meaning(self.meaning, tuple(self.dtypes.items()), tuple(self.sizes.items()))


def read_microkernel(path: str | Path) -> MicrokernelFile:
    """The microkernel that the file at `path` describes. Raises OptionError, with the file and the entry."""
    path = Path(path)
    try:
        content = read_plain(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"microkernel {path}: cannot be read: {reason.lower()}") from None
    except OptionError as error:
        raise OptionError(f"microkernel {path}: {str(error).removeprefix('schedule')}") from None
    reader = _EntryReader(path, content)
    name = reader.text("name", path.stem)
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        reader.fail("name", f"{name!r} is no name", "letters, digits and _")
    code = path.parent / reader.text("code")
    if code.suffix not in _KINDS or not code.is_file():
        why = "there is no such file" if code.suffix in _KINDS else "it is of another kind"
        reader.fail("code", f"{code}: {why}", f"a file {', '.join(_KINDS)}")
    found = MicrokernelFile(
        path, name, reader.text("meaning"), {key: str(each) for key, each in reader.mapping("operands").items()},
        {key: reader.size(key, each) for key, each in reader.mapping("sizes", optional=True).items()}, code,
        reader.text("symbol", name), reader.text("kernel", ""), reader.text("compiler", ""),
        tuple(reader.text("flags", "").split()),
    )
    try:
        _ = found.parsed
    except ValueError as error:
        raise OptionError(f"microkernel {path}: {error}") from None
    return found


@dataclass(frozen=True)
class _EntryReader:
    path: Path
    content: dict[str, Plain]

    def __post_init__(self) -> None:
        for key in self.content:
            if key not in _KEYS:
                self.fail(key, "there is no such entry", f"some of {', '.join(_KEYS)}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.content.get(key, default)
        if not isinstance(value, str) or (not value and default is None):
            self.fail(key, "it is missing" if value is None else f"{value!r} is no text", "text")
        return value

    def mapping(self, key: str, optional: bool = False) -> dict[str, Plain]:
        value = self.content.get(key, {} if optional else None)
        if not isinstance(value, dict):
            self.fail(key, "it is missing" if value is None else "it is no mapping", f"{key}: {{NAME: VALUE, …}}")
        return value

    def size(self, name: str, value: Plain) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail("sizes", f"{name} is {value!r}", "a number of elements; leave out dimensions of any extent")
        return value

    def fail(self, key: str, why: str, expected: str) -> NoReturn:
        raise OptionError(f"microkernel {self.path}: {key}: {why}; expected {expected}")
