"""Finds the external data files of an ONNX model, without the package onnx.

A tensor with external data names a file, relative to the folder of its model, and an offset in it. The process that
requests a compile must know these files, because their contents are part of the cache key. It reads only the protobuf
fields that name them.

Source: onnx.ai/onnx/repo-docs/ExternalData.html, onnx.proto.
"""

from __future__ import annotations

import os
import posixpath
import stat
from pathlib import Path

from motet.compiler.protobuf import Content, delimited_fields

State = tuple[int, int]  # size of a file in bytes, and its modification time

_LOCATION = b"location"  # a key of `TensorProto.external_data`

# Messages of onnx.proto that lead to tensors: field number → the type of the field.
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
    """A tensor gives an invalid location; the message says why."""


def data_files(model: str, content: Content) -> dict[str, State]:
    """The states of the data files of the model in the file `model`, keyed by the location that its tensors give.

    Leaves out absent files and locations that are not allowed; the model's reader reports them.
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
    """The file that `location` names in a tensor of the model in the file `model`.

    The file must be below the folder of the model or, if it is not there and `model` is a symbolic link, below the
    folder of the link's target. Symbolic links below these folders may point anywhere. Raises InvalidLocation, and
    OSError for a name that the file system refuses.
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
    """The distinct locations of the tensors of a serialized `ModelProto`, in order. Other content gives none, or
    locations that are not used."""
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
                # Most nodes have no tensor with external data; this search is cheaper than parsing them.
                and (inner[number] != "node" or content.find(_LOCATION, begin, finish) >= 0)
            ]
        except IndexError:
            continue  # damaged, or not a message of this type
    return sorted(found)


def entry(content: Content, start: int, end: int) -> tuple[bytes, bytes]:
    """The key and value of a `StringStringEntryProto`."""
    fields = {1: b"", 2: b""}
    try:
        for number, _, begin, finish in delimited_fields(content, start, end):
            fields[number] = content[begin:finish]
    except IndexError:
        pass
    return fields[1], fields[2]
