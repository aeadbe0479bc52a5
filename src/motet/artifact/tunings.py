"""Tunings: which form of a kernel was fastest, by kernel and device; one readable file that machines can share.

    {"motet_tunings": 1,
     "kernels": [{"kernel": "9f0c…", "target": "cuda:sm_90a", "device": "NVIDIA H100 80GB HBM3",
                  "form": "128x256x64 warps=8 stages=3", "about": "linalg.matmul at model.mlir:3:8",
                  "microseconds": {"128x256x64 warps=8 stages=3": 188.1, "128x128x64 warps=8 stages=4": 201.7}}]}

`kernel` names what is computed, on which extents, whatever the program that it is of; a form that a later version of
the compiler no longer makes is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from motet.artifact.files import write_atomically
from motet.artifact.library import Algorithm
from motet.errors import OptionError

VERSION = 1


class Tuning(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was measured of one kernel on one kind of device: `form` is the fastest, `microseconds` all that were
    tried; `target` is what the code was made for, `about` is for people. `library` is there where the device's library
    was faster than all forms, with the algorithm that it was measured with."""

    kernel: str
    target: str
    device: str
    form: str
    about: str = ""
    microseconds: dict[str, float] = {}
    library: Algorithm | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    motet_tunings: int
    kernels: list[Tuning]


class _TuningsVersion(msgspec.Struct, frozen=True):
    motet_tunings: int


@dataclass(frozen=True)
class Tunings:
    """The content of a file of tunings."""

    kernels: tuple[Tuning, ...] = ()

    def find(self, kernel: str, target: str) -> Tuning | None:
        """What is known of `kernel` compiled for `target`, from the first device that it was measured on."""
        return next((each for each in self.kernels if (each.kernel, each.target) == (kernel, target)), None)

    def merged(self, fresh: Iterable[Tuning]) -> Tunings:
        """With `fresh`, which take the places of older ones of the same kernel, target and device."""
        found = {(each.kernel, each.target, each.device): each for each in self.kernels}
        found |= {(each.kernel, each.target, each.device): each for each in fresh}
        return Tunings(tuple(found.values()))

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(_File(VERSION, list(self.kernels))), indent=1)

    def write(self, path: str | Path) -> None:
        """Raises ArtifactError for what cannot be written."""
        write_atomically(Path(path), [memoryview(self.encode())])


def parse_tunings(data: bytes | str, where: str) -> Tunings:
    """Raises OptionError for what is no file of tunings; `where` names it."""
    try:
        version = msgspec.json.decode(data, type=_TuningsVersion).motet_tunings
        if version != VERSION:
            raise OptionError(f"{where}: tunings of version {version}; expected {VERSION}; measure anew with this one")
        return Tunings(tuple(msgspec.json.decode(data, type=_File).kernels))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{where}: no tunings: {error}; expected a file that motet tune -o FILE writes") from None


def read_tunings(path: str | Path, where: str = "") -> Tunings:
    """The tunings in a file. Raises OptionError for one that cannot be read."""
    where = where or str(path)
    try:
        return parse_tunings(Path(path).read_bytes(), where)
    except OSError as error:
        raise OptionError(f"{where}: cannot be read: {(error.strerror or str(error)).lower()}") from None
