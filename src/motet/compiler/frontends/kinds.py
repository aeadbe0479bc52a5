"""Decides what kind of program a source is: by the caller's format, else by marks that only one kind has.

    given by the caller     a format; the suffix .onnx of a file
    OpenVINO's IR           XML with the element net
    a serialized graph      a safetensors header with the program's text first in its metadata
    an archive, bytecode    their signatures
    ONNX                    all fields up to the end are fields of ModelProto, and one is a graph
    text                    everything else
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import PurePath
from typing import Literal

from motet.artifact.reader import MANIFEST
from motet.compiler.protobuf import DELIMITED, VARINT, Content, fields
from motet.errors import CompileError, Location
from motet.serialized import is_serialized

FORMATS = ("mlir", "stablehlo", "onnx", "openvino")
Kind = Literal["mlir", "stablehlo", "onnx", "openvino", "graph", "archive"]

_STABLEHLO = re.compile(r"(?<![\w$.#!])\"?(?:stablehlo|chlo|vhlo|mhlo)\.\w")
_COMMENT = re.compile(r"//[^\n]*")
_PROLOGUE = r"<\?.*?\?>|<!--.*?-->|<!DOCTYPE(?:[^\[>]|\[.*?\]\s*(?=>))*>"  # what XML allows before the first element
_NET = re.compile(rf"\s*(?:(?:{_PROLOGUE})\s*)*<net\b", re.DOTALL)
_ZIP, _BYTECODE = b"PK\x03\x04", b"ML\xefR"


def kind_of(source: str | Content, file: str, format: str = "auto") -> Kind:
    """The kind of `source`, named `file`. Raises CompileError if it has none, is empty, or is an artifact."""
    if format == "onnx" or (format == "auto" and PurePath(file).suffix.lower() == ".onnx"):
        return "onnx"
    if format not in ("auto", *FORMATS):
        raise CompileError(f"format {format}: unknown; expected auto, {', '.join(FORMATS)}", Location(file))
    if not isinstance(source, str) and format in ("auto", "mlir"):
        if is_serialized(source):
            return "graph"
        if source[: len(_ZIP)] == _ZIP:
            if _is_artifact(source):
                raise CompileError("an artifact, which is compiled already; expected a program", Location(file))
            return "archive"
    if not isinstance(source, str) and source[: len(_BYTECODE)] == _BYTECODE:
        raise CompileError("MLIR bytecode is not supported; expected MLIR text", Location(file))
    if format == "mlir" or format == "stablehlo" or format == "openvino":
        return format
    if _NET.match(_beginning(source)):
        return "openvino"
    if not isinstance(source, str) and _is_onnx(source):
        return "onnx"
    text = text_of(source, file)
    if not text.strip():
        raise CompileError("empty input; expected MLIR or StableHLO text, an ONNX model, or OpenVINO's IR",
                           Location(file))
    return "stablehlo" if _STABLEHLO.search(_COMMENT.sub("", text)) else "mlir"


def _beginning(source: str | Content) -> str:
    """The first characters of a source, if it is text."""
    return source[:4096] if isinstance(source, str) else source[:4096].decode("utf-8-sig", errors="replace")


def text_of(source: str | Content, file: str) -> str:
    """The source's text. Raises CompileError if the source is not text."""
    if isinstance(source, str):
        return source
    try:
        return source[:].decode("utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise CompileError(
            f"unknown format: neither text (byte {error.start} is not UTF-8) nor an ONNX model; "
            "expected MLIR or StableHLO text, an ONNX model, or OpenVINO's IR",
            Location(file),
        ) from None


def _is_artifact(archive: Content) -> bool:
    """Whether a zip archive is a Motet artifact."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive[:])) as opened:
            return MANIFEST in opened.namelist()
    except zipfile.BadZipFile:
        return False


# Field number → wire type, of onnx.proto's ModelProto and GraphProto.
_MODEL: dict[int, int] = {1: VARINT, 5: VARINT, **dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), DELIMITED)}
_GRAPH: dict[int, int] = dict.fromkeys((1, 2, 5, 10, 11, 12, 13, 14, 15, 16), DELIMITED)
_VERSION_FIELD, _GRAPH_FIELD = 1, 7


def _is_onnx(content: Content) -> bool:
    """Whether `content` is a ModelProto, or a truncated one that begins with the version, as all writers' models do;
    its reader then reports the truncation."""
    begins_with_version = has_graph = False
    try:
        for number, wire, begin, start, end in fields(content, 0, len(content)):
            if _MODEL.get(number, wire) != wire or number == 0:
                return False
            begins_with_version |= begin == 0 and number == _VERSION_FIELD
            if number == _GRAPH_FIELD:
                if not _is_graph(content, start, end):
                    return False
                has_graph = True
    except IndexError:
        return begins_with_version
    return has_graph or (begins_with_version and len(content) > 0)


def _is_graph(content: Content, start: int, end: int) -> bool:
    try:
        return all(number and _GRAPH.get(number, wire) == wire for number, wire, *_ in fields(content, start, end))
    except IndexError:
        return False
