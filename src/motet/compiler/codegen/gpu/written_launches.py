"""What a GPU's back end asks of who compiles launches that are kept as they were written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from motet.compiler.ir._mlir import ir
from motet.compiler.scheduling.schedule import Compiled


class LaunchCompiler(Protocol):
    """Code for functions that stand for a launch (`ir/launches.py`), for one target."""

    def emit(self, function: ir.Operation, name: str) -> Compiled:
        """Code of `function`. Raises CompileError, at the operation of the program, for what has no code."""
        ...

    def compile(self, compiled: Mapping[str, Compiled], jobs: int, members: dict[str, bytes]) -> list[str]:
        """Machine code for all launches among `compiled`, added to `members`; the names of their objects."""
        ...

    def text(self, compiled: Mapping[str, Compiled], stage: str) -> str:
        """The launches as `--emit` shows them at `llvm` or `assembly`."""
        ...
