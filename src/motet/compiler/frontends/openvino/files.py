"""Reads IR: a file with the graph in XML (`.xml`), and one with the constants (`.bin`), named the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from motet.compiler.frontends.openvino.package import require_openvino
from motet.compiler.protobuf import Content
from motet.errors import CompileError, Location

_MARKS = ("XML_PARSE", "parsing", "Check '", "Exception from")


def read_ir(data: Content, file: str, path: str = "") -> Any:
    """The `openvino.Model` in IR. `data` is the text of the graph, `file` its name in errors, and `path` where it was
    read from, next to which the constants are; a graph without a path must have none.

    Raises CompileError for text that is not IR, truncated files, and constants without their file.
    """
    openvino, location = require_openvino(file), Location(file)
    text = bytes(data[:])
    weights = check_ir(text, file, path)
    try:
        core = openvino.Core()
        if weights is not None and weights.exists():
            return core.read_model(path, str(weights))
        return core.read_model(text.decode(), openvino.Tensor(np.zeros(0, np.uint8)))
    except (RuntimeError, UnicodeDecodeError) as error:
        raise CompileError(f"not OpenVINO IR that openvino {openvino.__version__.split('-')[0]} reads: "
                           f"{_reason(str(error))}", location) from None


def check_ir(text: bytes, file: str, path: str) -> Path | None:
    """The file of the constants of the graph `text`; None if `path` is empty. Raises CompileError for a truncated
    graph, and for constants that this file lacks."""
    location = Location(file)
    weights = Path(path).with_suffix(".bin") if path else None
    if not text.rstrip().endswith(b"</net>"):
        raise CompileError(f"truncated, or not OpenVINO IR: it ends with {_end(text)!r}; expected </net>", location)
    _check_constants(text, weights, location)
    return weights


def _end(text: bytes) -> str:
    return text.rstrip()[-16:].decode(errors="replace")


def _check_constants(text: bytes, weights: Path | None, location: Location) -> None:
    """Checks that the constants' file is there and as long as the graph's offsets need."""
    needed = _needed(text)
    if not needed:
        return
    if weights is None:
        raise CompileError("its constants are in another file, but the graph was given as text; give the path of the "
                           ".xml, or the openvino.Model", location)
    if not weights.exists():
        raise CompileError(f"its constants are missing; expected {needed:,} bytes in {weights.name} next to it",
                           location)
    size = weights.stat().st_size
    if size < needed:
        raise CompileError(f"its constants are truncated: {weights.name} has {size:,} bytes; expected {needed:,}",
                           location)


def _needed(text: bytes) -> int:
    """The bytes that the constants need: the largest end of a `<data offset="…" size="…">`."""
    import re

    ends = [0]
    for match in re.finditer(rb"<data\s[^>]*>", text):
        offset, size = (
            re.search(rb"\b" + name + rb"\s*=\s*[\"'](\d+)[\"']", match[0]) for name in (b"offset", b"size")
        )
        if offset is not None and size is not None:
            ends.append(int(offset[1]) + int(size[1]))
    return max(ends)


def _reason(text: str) -> str:
    """The line of OpenVINO's message that tells the reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    plain = [line for line in lines if not any(mark in line for mark in _MARKS)]
    return " ".join((plain or lines or ["no reason given"])[:2])[:300]
