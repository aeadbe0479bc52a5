"""The file format between compiler and runtime: schema, writer, reader and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet.on_use import imported_on_use

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.artifact.writer import write_artifact

__all__ = ["Artifact", "write_artifact"]

# Processes that compile kernels need the launch record alone.
if not TYPE_CHECKING:
    __getattr__ = imported_on_use("motet.artifact", {
        "Artifact": "motet.artifact.reader:Artifact", "write_artifact": "motet.artifact.writer:write_artifact",
    })  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
