"""Tunings: the fastest form of each kernel, by kernel and device; one readable file that machines can share.

    {"motet_tunings": 1,
     "kernels": [{"kernel": "9f0c…", "target": "cuda:sm_90a", "device": "NVIDIA H100 80GB HBM3",
                  "form": "128x256x64 warps=8 stages=3", "about": "linalg.matmul at model.mlir:3:8",
                  "microseconds": {"128x256x64 warps=8 stages=3": 188.1, "128x128x64 warps=8 stages=4": 201.7}}]}

`kernel` identifies the computation and its extents, independently of the program. A form that a later version of the
compiler no longer generates is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from motet.artifact.files import read_named, write_atomically
from motet.artifact.library import Algorithm
from motet.decoding import decode_json
from motet.errors import OptionError

VERSION = 1


class Tuning(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The measurements of one kernel on one kind of device: `form` is the fastest, `microseconds` has all that were
    tried; `target` is the target of the code, `about` is informative. `library` is present if the device's library was
    faster than all forms, with the algorithm that it was measured with."""

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
        """The tuning of `kernel` compiled for `target`, of the first device that it was measured on; None if
        unknown."""
        return next((each for each in self.kernels if (each.kernel, each.target) == (kernel, target)), None)

    def merged(self, fresh: Iterable[Tuning]) -> Tunings:
        """These tunings and `fresh`, which replace older ones of the same kernel, target and device."""
        found = {(each.kernel, each.target, each.device): each for each in self.kernels}
        found |= {(each.kernel, each.target, each.device): each for each in fresh}
        return Tunings(tuple(found.values()))

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(_File(VERSION, list(self.kernels))), indent=1)

    def write(self, path: str | Path) -> None:
        """Writes the file. Raises ArtifactError if it cannot be written."""
        write_atomically(Path(path), [memoryview(self.encode())])


def parse_tunings(data: bytes | str, where: str) -> Tunings:
    """Parses a file of tunings. Raises OptionError, prefixed with `where`, if it is invalid."""
    try:
        version = decode_json(data, _TuningsVersion).motet_tunings
        if version != VERSION:
            raise OptionError(f"{where}: tunings of version {version}; expected {VERSION}; measure anew with this one")
        return Tunings(tuple(decode_json(data, _File).kernels))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{where}: no tunings: {error}; expected a file that motet tune -o FILE writes") from None


def read_tunings(path: str | Path, where: str = "") -> Tunings:
    """The tunings in a file. Raises OptionError if it cannot be read."""
    where = where or str(path)
    return parse_tunings(read_named(path, where), where)
