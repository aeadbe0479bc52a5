"""Frontends: what a user has, read into a `Program`. One file per format."""

from __future__ import annotations

import io
import mmap
import re
import zipfile

from motet.artifact.reader import MANIFEST
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import Place, Program
from motet.compiler.placement.erase_devices import erase_devices
from motet.errors import CompileError, Location

FORMATS = ("mlir", "stablehlo", "onnx")

_STABLEHLO = re.compile(r"(?<![\w$.#!])\"?(?:stablehlo|chlo|vhlo|mhlo)\.\w")
_COMMENT = re.compile(r"//[^\n]*")


def load_source(
    source: str | bytes | mmap.mmap, file: str, format: str = "auto", place: Place = erase_devices
) -> Program:
    """Reads a program; `file` is its name in messages, `format` one of `FORMATS` or `auto`, which
    looks inside.

    `source` may be a mapped file, whose large constants then stay where they are. Text (or its UTF-8 bytes) is MLIR
    or StableHLO, other bytes are ONNX, a serialised graph of `motet.builder`, or what torch.export.save wrote. `place`
    turns what the program says of devices into a placement; without it, that is taken out. Raises CompileError with
    the place.
    """
    if format != "auto" and format not in FORMATS:
        raise CompileError(f"format {format}: unknown; expected auto, {', '.join(FORMATS)}", Location(file))
    if isinstance(source, mmap.mmap):
        if format == "onnx" or (format == "auto" and _is_onnx(source[:2])):
            return _load_onnx(source, file, place)
        source = source[:]
    if isinstance(source, bytes) and format in ("auto", "mlir"):
        from motet.compiler.frontends.graph import is_serialized, load_serialized

        if is_serialized(source):
            return load_serialized(source, file, place)
        if source.startswith(b"PK\x03\x04"):
            if _is_artifact(source):
                raise CompileError("an artifact, which is compiled already; expected a program", Location(file))
            from motet.compiler.frontends.torch_archive import load_archive

            return load_archive(source, file, place)
    kind = detect_format(source, file) if format == "auto" else format
    if kind == "onnx":
        return _load_onnx(source.encode() if isinstance(source, str) else source, file, place)
    text = _text(source, file)
    if kind == "stablehlo":
        from motet.compiler.frontends.stablehlo import load_stablehlo

        return load_stablehlo(text, file, place)
    from motet.compiler.frontends.mlir import load_mlir

    return load_mlir(text, file, place)


def _is_artifact(archive: bytes) -> bool:
    """Whether a zip archive is what Motet writes."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return MANIFEST in opened.namelist()
    except zipfile.BadZipFile:
        return False


def _load_onnx(source: bytes | mmap.mmap, file: str, place: Place) -> Program:
    from motet.compiler.frontends.onnx import load_onnx

    program = load_onnx(source, file)
    with program.module.context as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        program.placement = place(program.module)
    return program


def detect_format(source: str | bytes, file: str) -> str:
    """The format of `source`, one of `FORMATS`. Raises CompileError when it is none, or empty."""
    if not source.strip():
        raise CompileError("empty input; expected MLIR or StableHLO text, or an ONNX model", Location(file))
    if isinstance(source, bytes):
        if source.startswith(b"ML\xefR"):
            raise CompileError("MLIR bytecode is not supported; expected MLIR text", Location(file))
        if _is_onnx(source):
            return "onnx"
    text = _text(source, file)
    return "stablehlo" if _STABLEHLO.search(_COMMENT.sub("", text)) else "mlir"


def _is_onnx(data: bytes) -> bool:
    """Whether the bytes begin as ONNX's ModelProto does: with the field of its version, a small number.

    A model may have its fields in any order, but every writer puts them in the order of their numbers.
    """
    return len(data) >= 2 and data[0] == 0x08 and data[1] < 0x80


def _text(source: str | bytes, file: str) -> str:
    if isinstance(source, str):
        return source
    try:
        return source.decode("utf-8-sig")  # which some editors begin with a mark
    except UnicodeDecodeError as error:
        raise CompileError(
            f"unknown format: neither text (byte {error.start} is not UTF-8) nor an ONNX model; "
            "expected MLIR or StableHLO text, or an ONNX model",
            Location(file),
        ) from None
