"""Reads files of torch.export: `motet.pytorch` first converts them to the dialect `torch`."""

from __future__ import annotations

from motet.compiler.frontends.graph import load_serialized
from motet.compiler.ir.program import Program
from motet.errors import CompileError, Location


def load_archive(data: bytes, file: str) -> Program:
    """The program that torch.export.save has written. Needs torch. Raises CompileError for other archives."""
    try:
        from motet.pytorch.export import serialize_archive
    except ImportError:
        raise CompileError(
            "a zip archive: to read programs of torch.export, torch is needed; pip install 'motet[torch]'",
            Location(file),
        ) from None
    return load_serialized(serialize_archive(data, file), file)
