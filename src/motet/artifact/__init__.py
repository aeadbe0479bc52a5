"""The file format between compiler and runtime: schema, writer, reader and checks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.artifact.writer import write_artifact

__all__ = ["Artifact", "write_artifact"]

# Loaded when used: processes that compile kernels need the launch record alone.
_LAZY = {"Artifact": "motet.artifact.reader", "write_artifact": "motet.artifact.writer"}


if not TYPE_CHECKING:  # type checkers would take any name for an attribute

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
