"""What a model says of itself: ModelMetadata, with the fields of onnxruntime's."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path

from motet.compiler.protobuf import VARINT, Content, fields, varint

_NO_VERSION = (1 << 63) - 1  # onnxruntime's version of a model without one
_TEXTS = {2: "producer_name", 4: "domain", 6: "description"}  # fields of onnx.ModelProto
_VERSION, _GRAPH, _PROPERTY = 5, 7, 14
_GRAPH_TEXTS = {2: "graph_name", 10: "graph_description"}


@dataclass
class ModelMetadata:
    """The model's producer, version, description, and what else its author wrote into it."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = _NO_VERSION
    custom_metadata_map: dict[str, str] = field(default_factory=dict[str, str])


def read_metadata(source: str | os.PathLike[str] | bytes) -> ModelMetadata:
    """The metadata of an ONNX model, without reading its graph; of anything else, no metadata."""
    try:
        if isinstance(source, bytes):
            return _read(source)
        with Path(source).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _read(content)
    except (OSError, ValueError, IndexError):
        return ModelMetadata()


def _read(content: Content) -> ModelMetadata:
    found, has_graph = ModelMetadata(), False
    for number, wire, _, start, end in fields(content, 0, len(content)):
        if number in _TEXTS:
            setattr(found, _TEXTS[number], _text(content, start, end))
        elif number == _VERSION and wire == VARINT:
            value, _ = varint(content, start)
            found.version = value - (1 << 64) if value >> 63 else value
        elif number == _GRAPH:
            has_graph = True
            for inner, _, _, at, to in fields(content, start, end):
                if inner in _GRAPH_TEXTS:
                    setattr(found, _GRAPH_TEXTS[inner], _text(content, at, to))
        elif number == _PROPERTY:
            pair = {inner: _text(content, at, to) for inner, _, _, at, to in fields(content, start, end)}
            found.custom_metadata_map[pair.get(1, "")] = pair.get(2, "")
    return found if has_graph else ModelMetadata()  # an artifact, or a program of another format


def _text(content: Content, start: int, end: int) -> str:
    return content[start:end].decode(errors="replace")
