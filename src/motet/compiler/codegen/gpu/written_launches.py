"""The interface between a GPU back end and the compiler of launches that are kept as written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from motet.compiler.ir._mlir import ir
from motet.compiler.scheduling.schedule import Compiled


class LaunchCompiler(Protocol):
    """Compiles functions that stand for a launch (`ir/launches.py`), for one target."""

    def emit(self, function: ir.Operation, name: str) -> Compiled:
        """Code of `function`. Raises CompileError at the program's operation if it is not supported."""
        ...

    def compile(self, compiled: Mapping[str, Compiled], jobs: int, members: dict[str, bytes]) -> list[str]:
        """Compile all launches among `compiled`, add machine code to `members`; returns the names of their objects."""
        ...

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        """The launches as text for `--emit` at stage `llvm` or `assembly`."""
        ...
