"""Finds the files that hold the data of an ONNX model's tensors, without the package onnx.

A tensor with external data names a file, relative to the folder of its model, and where in that file its data is. The
process that asks for a compile must know these files, for what is in them decides what is compiled; it reads no more of
the model than the protobuf fields that name them.

Source: onnx.ai/onnx/repo-docs/ExternalData.html, onnx.proto.
"""

from __future__ import annotations

import os
import posixpath
import stat
from pathlib import Path

from motet.compiler.protobuf import Content, delimited_fields

State = tuple[int, int]  # bytes of a file, and when it was changed

_LOCATION = b"location"  # a key of `TensorProto.external_data`

# Messages of onnx.proto that lead to tensors: by field number, what its content is.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}


class InvalidLocation(ValueError):
    """What is wrong with the location that a tensor gives."""


def data_files(model: str, content: Content) -> dict[str, State]:
    """The states of the data files of the model in the file `model`, by the location that its tensors give.

    Files that are absent, and locations that are not allowed, are left out: who reads the model says so.
    """
    states: dict[str, State] = {}
    for location in _locations(content):
        try:
            status = resolve(model, location).stat()
        except (OSError, InvalidLocation):
            continue
        if stat.S_ISREG(status.st_mode):
            states[location] = state_of(status)
    return states


def state_of(status: os.stat_result) -> State:
    return status.st_size, status.st_mtime_ns


def resolve(model: str, location: str) -> Path:
    """The file that a tensor of the model in the file `model` means by `location`.

    It is below the folder of the model; or, where it is not there and `model` is a symbolic link, below the folder of
    what is linked. Links below these folders may lead anywhere. Raises InvalidLocation, and OSError for what the
    system does not take for a name.
    """
    if not location:
        raise InvalidLocation("no file is named")
    if "\0" in location:
        raise InvalidLocation("not the name of a file")
    if posixpath.isabs(location):
        raise InvalidLocation("an absolute path")
    normal = posixpath.normpath(location)
    if normal.split("/")[0] == "..":
        raise InvalidLocation("outside the model's folder")
    folder = Path(model).absolute().parent
    if not (folder / normal).exists():
        linked = Path(os.path.realpath(model)).parent
        if (linked / normal).exists():
            return linked / normal
    return folder / normal


def _locations(content: Content) -> list[str]:
    """Every location that a tensor of a serialized `ModelProto` gives, once, in order; what is no such model has none,
    or none that matters."""
    found: dict[str, None] = {}
    waiting = [("model", 0, len(content))]
    while waiting:
        kind, start, end = waiting.pop()
        if kind == "entry":
            key, value = entry(content, start, end)
            if key == _LOCATION:
                found[value.decode(errors="replace")] = None
            continue
        inner = _FIELDS[kind]
        try:
            waiting += [
                (inner[number], begin, finish)
                for number, _, begin, finish in delimited_fields(content, start, end)
                if number in inner
                # Most nodes have no tensor with external data: finding that out is cheaper than reading them.
                and (inner[number] != "node" or content.find(_LOCATION, begin, finish) >= 0)
            ]
        except IndexError:
            continue  # damaged, or no such message
    return sorted(found)


def entry(content: Content, start: int, end: int) -> tuple[bytes, bytes]:
    """Key and value of a `StringStringEntryProto`."""
    fields = {1: b"", 2: b""}
    try:
        for number, _, begin, finish in delimited_fields(content, start, end):
            fields[number] = content[begin:finish]
    except IndexError:
        pass
    return fields[1], fields[2]
