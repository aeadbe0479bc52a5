"""The output of the Triton code generators: a program's source, and its options for compilation and launch."""

from __future__ import annotations

from dataclasses import dataclass

from motet.artifact.library import LibraryCall
from motet.artifact.schema import Expr
from motet.compiler.codegen.kernel_code import KernelCode


@dataclass(frozen=True)
class Form:
    """One implementation of a program. `source` is a Python module that defines a function with the program's symbol
    under `triton.jit`; `tasks` is the one-dimensional grid; `stages` is the number of loop iterations in flight.
    `label` distinguishes a program's forms and is stable across versions, as tunings refer to it. Each `blocks` blocks
    of the grid, a divisor of `tasks`, form a cluster on neighbouring SMs (`clusters.py`). `early` means that it may
    start while its dependences still run, and its dependents before it ends (`programmatic_launch.py`)."""

    source: str
    tasks: Expr
    warps: int = 4
    stages: int = 1
    label: str = ""
    blocks: int = 1
    early: bool = True


@dataclass(frozen=True)
class TritonProgram:
    """One launch. Its arguments are pointers to elements of the dtypes in `buffers`, then the extents `symbols` as
    numbers of the types in `sizes` (`i32` or `i64`). `forms` are in order of preference: the first that fits the target
    is used. `key` identifies the computation and its extents independently of the surrounding program; `about`
    describes it to people. `library` is an equivalent library call, if there is one, as a candidate for tuning; `call`,
    if set, replaces the program wherever the library is available."""

    symbol: str
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    forms: tuple[Form, ...]
    key: str = ""
    about: str = ""
    symbols: tuple[str, ...] = ()
    library: LibraryCall | None = None
    call: LibraryCall | None = None


@dataclass(frozen=True)
class TritonCode(KernelCode):
    """A kernel's code for a GPU: one program for each phase; `llvm` is empty."""

    programs: tuple[TritonProgram, ...] = ()
