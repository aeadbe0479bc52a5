"""Makes the members of an artifact that hold its source (`--option keep-source`).

A tensor of an ONNX model, in the model or in an external data file, that is an unchanged parameter of the artifact is
stored as a reference to the parameter. Constants that Motet has folded, packed or converted are stored twice, also in
the source's form, and so are the constants of MLIR text and of PyTorch's archives.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path, PurePath

import msgspec
import numpy as np

from motet.artifact.parameters import StoredArray
from motet.artifact.sources import BYTES, DESCRIPTION, KeptSource, SourceFile, SourcePiece
from motet.compiler import external_data
from motet.compiler.frontends.kinds import kind_of
from motet.compiler.job import Job
from motet.compiler.protobuf import Content, delimited_fields
from motet.errors import CompileError, Location

_WORTH = 4096  # minimum bytes of a tensor that is searched for among the parameters
_TENSOR, _RAW_DATA, _EXTERNAL_DATA = "tensor", 9, 13
# Messages of onnx.proto that lead to constants: the type of each field by number.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: _TENSOR},
    "node": {5: "attribute"},
    "attribute": {5: _TENSOR, 6: "graph"},
}


def source_members(job: Job, source: Content, parameters: Sequence[StoredArray]) -> dict[str, bytes]:
    """The members that keep the source of `job`; `parameters` are the artifact's, in order."""
    known = _by_size(parameters)
    onnx = kind_of(source, job.path, job.format) == "onnx"
    tensors = list(_tensors(source)) if onnx else []
    files: list[SourceFile] = []
    stored = bytearray()
    spans = [span for name, *span in tensors if not name]
    files.append(SourceFile(_name(job.path, onnx), _pieces(source, spans, known, stored)))
    for location in job.data_files:
        with _mapped(job, location) as content:
            spans = [span for name, *span in tensors if name == location]
            files.append(SourceFile(location, _pieces(content, spans, known, stored)))
    kept = KeptSource(files, job.format, tuple(map(str, job.devices)))
    return {DESCRIPTION: msgspec.json.encode(kept), BYTES: bytes(stored)}


def _name(path: str, onnx: bool) -> str:
    """The name of the program's file; a program without a file gets a neutral name."""
    name = PurePath(path).name
    plain = name not in ("", ".", "..") and not name.startswith("<")
    return name if plain else "source.onnx" if onnx else "source"


@contextlib.contextmanager
def _mapped(job: Job, location: str) -> Generator[Content]:
    path = external_data.resolve(job.model, location)
    try:
        with Path(path).open("rb") as file:
            status = path.stat()
            if external_data.state_of(status) != job.data_files[location]:
                raise CompileError(f"external data file {location!r} was changed while it was compiled; "
                                   "compile it again", Location(job.path))
            if not status.st_size:
                yield b""
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                yield content
    except OSError as error:
        raise CompileError(f"external data file {location!r}: {(error.strerror or str(error)).lower()}",
                           Location(job.path)) from None


def _by_size(parameters: Sequence[StoredArray]) -> dict[int, dict[int, np.ndarray]]:
    """Parameters that are not packed as bytes, by size and index."""
    found: dict[int, dict[int, np.ndarray]] = {}
    for index, array in enumerate(parameters):
        if isinstance(array, np.ndarray) and array.nbytes >= _WORTH:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            found.setdefault(array.nbytes, {})[index] = data
    return found


def _pieces(
    content: Content, spans: Sequence[list[int]], known: Mapping[int, Mapping[int, np.ndarray]], stored: bytearray
) -> list[SourcePiece]:
    """The pieces of a file in which `spans` are tensors; data not held by a parameter is appended to `stored`."""
    pieces: list[SourcePiece] = []
    position = 0
    for begin, end in sorted(spans):
        index = _find(content, begin, end, known) if position <= begin else None
        if index is not None:
            _store(content, position, begin, stored, pieces)
            pieces.append(SourcePiece(end - begin, index))
            position = end
    _store(content, position, len(content), stored, pieces)
    return pieces


def _store(content: Content, begin: int, end: int, stored: bytearray, pieces: list[SourcePiece]) -> None:
    if begin < end:
        stored += content[begin:end]
        pieces.append(SourcePiece(end - begin))


def _find(content: Content, begin: int, end: int, known: Mapping[int, Mapping[int, np.ndarray]]) -> int | None:
    """The parameter with the bytes from `begin` to `end`; None if there is none."""
    candidates = known.get(end - begin)
    if not candidates:
        return None
    data = np.frombuffer(content[begin:end], np.uint8)
    for index, parameter in candidates.items():
        # Most parameters of the same size differ early.
        if np.array_equal(data[:64], parameter[:64]) and np.array_equal(data, parameter):
            return index
    return None


def _tensors(content: Content) -> Iterator[tuple[str, int, int]]:
    """The locations of the data of a serialised model's constants: the external file's location or "", begin and
    end."""
    waiting = [("model", 0, len(content))]
    while waiting:
        kind, start, end = waiting.pop()
        try:
            if kind == _TENSOR:
                yield from _data_of(content, start, end)
                continue
            inner = _FIELDS[kind]
            waiting += [
                (inner[number], begin, finish)
                for number, _, begin, finish in delimited_fields(content, start, end)
                if number in inner
            ]
        except IndexError:
            continue


def _data_of(content: Content, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    entries: dict[bytes, bytes] = {}
    for number, _, begin, finish in delimited_fields(content, start, end):
        if number == _RAW_DATA and finish - begin >= _WORTH:
            yield "", begin, finish
        elif number == _EXTERNAL_DATA:
            key, value = external_data.entry(content, begin, finish)
            entries[key] = value
    with contextlib.suppress(ValueError):
        offset, length = int(entries.get(b"offset", b"0")), int(entries.get(b"length", b"0"))
        if length >= _WORTH and offset >= 0:
            yield entries.get(b"location", b"").decode(errors="replace"), offset, offset + length
