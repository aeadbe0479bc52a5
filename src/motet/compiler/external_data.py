"""Finds the files with external data of an ONNX model's tensors, without the package onnx, and with the constants of
OpenVINO's IR.

A tensor with external data names a file, relative to the folder of its model, and the location of its data in it. The
process that requests a compilation must know these files, since the cache key depends on them; of the model, it reads
only the protobuf fields that name them.

Source: onnx.ai/onnx/repo-docs/ExternalData.html, onnx.proto.
"""

from __future__ import annotations

import os
import posixpath
import stat
from pathlib import Path

from motet.compiler.protobuf import Content, delimited_fields

State = tuple[int, int]  # bytes of a file, and its modification time

_LOCATION = b"location"  # a key of `TensorProto.external_data`

# Messages of onnx.proto that lead to tensors: the type of each field by number.
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
    """An invalid location of a tensor; the text tells why."""


def data_files(model: str, content: Content) -> dict[str, State]:
    """The states of the data files of the model in the file `model`, by the locations that its tensors give.

    Missing files and invalid locations are omitted: they are reported when the model is read.
    """
    states: dict[str, State] = {}
    of_ir = model.endswith(".xml")
    for location in [Path(model).with_suffix(".bin").name] if of_ir else _locations(content):
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
    """The file that `location` refers to in a tensor of the model in the file `model`.

    It is below the folder of the model; or, if it is not there and `model` is a symbolic link, below the folder of the
    link's target. Links below these folders may point anywhere. Raises InvalidLocation, and OSError for names that the
    system does not support.
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
    """All locations given by tensors of a serialised `ModelProto`, once each, in order; empty if it is not a model."""
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
                # Most nodes have no tensor with external data: a search is cheaper than parsing them.
                and (inner[number] != "node" or content.find(_LOCATION, begin, finish) >= 0)
            ]
        except IndexError:
            continue  # damaged, or another message
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
