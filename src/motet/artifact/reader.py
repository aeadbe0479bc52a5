"""Reads artifacts: opens and maps the file, checks it, and returns its members without copying.

The manifest is checked when opening (`validation.py`), other members against their hashes on first use.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec
import numpy as np

from motet.argument_kinds import path_of, refuse_kind
from motet.artifact.agreement import check_agreement
from motet.artifact.archive import Stored, read_archive
from motet.artifact.contracts import CONTRACTS, Contracts, decode_contracts
from motet.artifact.dtypes import DTYPES, spelling
from motet.artifact.files import unreadable, write_atomically
from motet.artifact.hashes import hexdigest
from motet.artifact.notebook import artifact_html
from motet.artifact.parameters import ParameterFile
from motet.artifact.schema import SCHEMA_VERSION, Manifest, Signature
from motet.artifact.validation import validate
from motet.artifact.visible import callable_functions
from motet.decoding import decode_json
from motet.errors import ArtifactError, OutOfMemoryError

_T = TypeVar("_T")

MANIFEST = "manifest.json"
PARAMETERS = "parameters.safetensors"
_WORTH_A_THREAD = 4 << 20


class _ManifestVersion(msgspec.Struct):
    """The part of a manifest that every schema shares."""

    schema: int
    producer: str = "an unknown version"


class Artifact:
    """A compiled program: its manifest and members. Make one with `open` or `from_bytes`.

    Everything is read-only and safe to use from several threads.
    """

    def __init__(
        self, data: memoryview, where: str, folder: Path | None, verify: bool, copy: bool = False
    ) -> None:
        self._data = data
        self._where = where
        self._folder = folder
        self._verify = verify
        self._copy = copy
        self._stored = read_archive(data, where)
        self._verified: set[str] = set()
        self._checks: dict[str, Future[None]] = {}
        self._lock = threading.Lock()
        self.manifest = self._read_manifest()
        self._check_members()
        self.contracts = self._read_contracts()

    @staticmethod
    def open(path: str | Path, *, verify: bool = True, name: str = "", copy: bool = False) -> Artifact:
        """The artifact in file `path`, memory-mapped. Raises ArtifactError if it is missing or invalid.

        `verify=False` skips the check of members against their hashes, for a large trusted file. `name` is its name in
        messages; the default is its path. `copy` reads it, and its file of parameters, into memory, for files that
        others may cut short while they are in use, which ends a process that has mapped them.
        """
        path = path_of("path", path)
        return Artifact(_content(path, copy), name or str(path), path.parent, verify, copy)

    @staticmethod
    def from_bytes(
        data: bytes | bytearray | memoryview, *, name: str = "artifact", verify: bool = True
    ) -> Artifact:
        """The artifact with the file content `data`, which must not change; `name` names it in errors."""
        try:
            content = memoryview(data).cast("B").toreadonly()
        except TypeError:  # no buffer, or one with gaps
            refuse_kind("data", data, "the bytes of an artifact, contiguous")
        return Artifact(content, name, None, verify)

    @property
    def name(self) -> str:
        """The name in messages: the path or the given name."""
        return self._where

    @property
    def data(self) -> memoryview:
        """The file's content."""
        return self._data

    @property
    def callable_functions(self) -> list[Signature]:
        """The signatures of the functions that callers see, without hidden inputs and results."""
        return callable_functions(self.manifest.functions)

    @cached_property
    def functions(self) -> Mapping[str, Signature]:
        return {signature.name: signature for signature in self.manifest.functions}

    def member(self, name: str) -> memoryview:
        """The bytes of member `name`, checked against its hash. Raises ArtifactError if absent or damaged."""
        expected = self.manifest.members.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if expected is None:
            raise ArtifactError(
                f"{self._where}: no member {name!r}; there are: {', '.join(self.manifest.members) or 'none'}"
            )
        data, place = self._located(name)
        if len(data) != expected.size:
            raise ArtifactError(f"{place}: {len(data)} bytes given, {expected.size} expected")
        if self._verify and name not in self._verified:
            if (begun := self._checks.get(name)) is not None:
                begun.result()
            else:
                self._check(name)
        return data

    def _located(self, name: str) -> tuple[memoryview, str]:
        """A member's bytes, unchecked, and its name in messages."""
        if name == self.manifest.external_parameters:
            return self._external
        return self._stored[name].data, f"{self._where}: member {name!r}"

    def _check(self, name: str) -> None:
        data, place = self._located(name)
        expected = self.manifest.members[name]
        if hexdigest(data, expected.piece) != expected.sha256:
            raise ArtifactError(f"{place}: damaged: its hash is not the one in the manifest")
        self._verified.add(name)

    def begin_check(self) -> None:
        """Starts threads that check large parameters against their hash, so that the caller can work with
        `unchecked_parameter` meanwhile. `parameter` waits for them."""
        name = self.manifest.external_parameters or PARAMETERS
        member = self.manifest.members.get(name)
        with self._lock:
            known = not self._verify or name in self._verified or name in self._checks
            if member is None or known or member.size < _WORTH_A_THREAD or len(self._located(name)[0]) != member.size:
                return
            thread = ThreadPoolExecutor(1, "motet check")
            self._checks[name] = thread.submit(self._check, name)
            thread.shutdown(wait=False)

    def check(self) -> None:
        """Checks every member against its hash. Raises ArtifactError."""
        for name in self.manifest.members:
            self.member(name)

    def parameter(self, index: int) -> np.ndarray:
        """Parameter `index` of the manifest, a read-only view of the file."""
        if self.manifest.parameters:
            self.member(self.manifest.external_parameters or PARAMETERS)
        try:
            return self._parameters[index]
        except (IndexError, TypeError):
            raise ArtifactError(f"{self._where}: no parameter {index!r}; there are {len(self.manifest.parameters)}, "
                                "numbered from 0") from None

    def unchecked_parameter(self, index: int) -> np.ndarray:
        """Like `parameter`, without the check: the caller must call `parameter` before it uses results derived from
        it."""
        return self._parameters[index]

    def save(self, path: str | Path) -> None:
        """Writes the artifact to file `path` atomically, with external parameters next to it."""
        path = path_of("path", path)
        external = self.manifest.external_parameters
        if external is not None and path.parent / external != (self._folder or Path()) / external:
            write_atomically(path.parent / external, [self.member(external)])
        write_atomically(path, [self._data])

    def __reduce__(self) -> NoReturn:
        """Raises TypeError: an artifact maps its file."""
        raise TypeError(f"artifact {self._where} cannot be pickled or copied; send its path, or its bytes "
                        "(bytes(artifact.data)), and open it there by motet.load")

    def _repr_html_(self) -> str:
        """What a notebook shows: functions, targets, sizes."""
        return artifact_html(self.callable_functions, self.manifest, len(self._data), self._where)

    def __repr__(self) -> str:
        return f"Artifact({self._where!r}, functions: {', '.join(each.name for each in self.callable_functions)})"

    # -- reading ---------------------------------------------------------------------------------

    def _read_manifest(self) -> Manifest:
        stored = self._stored.get(MANIFEST)
        if stored is None:
            raise ArtifactError(f"{self._where}: not an artifact: a zip without {MANIFEST}")
        if not stored.is_intact:
            raise ArtifactError(f"{self._where}: member {MANIFEST!r}: damaged: its checksum does not fit")
        version = self._decode(stored, _ManifestVersion)
        if version.schema != SCHEMA_VERSION:
            newer = version.schema > SCHEMA_VERSION
            age, cure = ("newer", "update Motet") if newer else ("older", "compile it again")
            raise ArtifactError(
                f"{self._where}: made by {version.producer} in the {age} format {version.schema}; "
                f"this version reads format {SCHEMA_VERSION}; {cure}"
            )
        manifest = self._decode(stored, Manifest)
        validate(manifest, self._where)
        return manifest

    def _decode(self, stored: Stored, kind: type[_T]) -> _T:
        try:
            return decode_json(stored.data, kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ArtifactError(f"{self._where}: member {MANIFEST!r}: {error}") from error

    def _check_members(self) -> None:
        expected = set(self.manifest.members) - {self.manifest.external_parameters}
        found = set(self._stored) - {MANIFEST}
        if expected != found:
            missing, surplus = sorted(expected - found), sorted(found - expected)
            raise ArtifactError(
                f"{self._where}: members do not fit the manifest: missing: {', '.join(missing) or 'none'}; "
                f"not listed: {', '.join(surplus) or 'none'}"
            )
        for name in expected:
            if len(self._stored[name].data) != self.manifest.members[name].size:
                raise ArtifactError(f"{self._where}: member {name!r}: its size is not the manifest's")

    def _read_contracts(self) -> Contracts | None:
        """The contracts of its code, against which the manifest is checked; None if the artifact has none."""
        if CONTRACTS not in self.manifest.members:
            return None
        contracts = decode_contracts(self.member(CONTRACTS), self._where)
        check_agreement(self.manifest, contracts, self._where)
        return contracts

    @cached_property
    def _external(self) -> tuple[memoryview, str]:
        assert self.manifest.external_parameters is not None
        name = self.manifest.external_parameters
        if self._folder is None:
            raise ArtifactError(f"{self._where}: parameters are in file {name!r}; open it from its folder")
        path = self._folder / name
        return _content(path, self._copy), str(path)

    @property
    def _parameters(self) -> list[np.ndarray]:
        with self._lock:
            return self._load_parameters

    @cached_property
    def _load_parameters(self) -> list[np.ndarray]:
        if not self.manifest.parameters:
            return []
        name = self.manifest.external_parameters or PARAMETERS
        checks = self._checks or not self._verify
        file = ParameterFile.decode(
            self._located(name)[0] if checks else self.member(name), f"{self._where}: member {name!r}"
        )
        arrays: list[np.ndarray] = []
        for parameter in self.manifest.parameters:
            array = file.tensors.get(parameter.key)
            if array is None:
                raise ArtifactError(f"{self._where}: parameter {parameter.key!r}: not in {name!r}")
            if list(array.shape) != parameter.shape or array.dtype != DTYPES[parameter.dtype]:
                raise ArtifactError(
                    f"{self._where}: parameter {parameter.key!r}: "
                    f"{'x'.join(map(str, [*array.shape, spelling(array.dtype)]))} stored, "
                    f"{'x'.join(map(str, [*parameter.shape, parameter.dtype]))} expected"
                )
            arrays.append(array)
        return arrays


def _content(path: Path, copy: bool) -> memoryview:
    size = 0
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise ArtifactError(f"{path}: not an artifact: the file is empty")
            if copy:
                return memoryview(file.read())
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except MemoryError:
        raise OutOfMemoryError(size, "host") from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise OutOfMemoryError(size, "host") from None
        raise ArtifactError(unreadable(path, error)) from error
