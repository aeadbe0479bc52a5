"""What the Triton code generators make: a program's source, and how it wants to be compiled and launched."""

from __future__ import annotations

from dataclasses import dataclass

from motet.artifact.library import LibraryCall
from motet.artifact.schema import Expr
from motet.compiler.codegen.kernel_code import KernelCode


@dataclass(frozen=True)
class Form:
    """One way to write a program. `source` is a Python module that defines a function of the program's symbol under
    `triton.jit`; `tasks` is the grid, in one dimension; `stages` is how many turns of a loop are under way at once.
    `label` tells a program's forms apart, in words that stay the same from version to version: tunings name it. Each
    `blocks` of the grid, which `tasks` is a multiple of, are a cluster, placed beside each other (`clusters.py`).
    `early` says that it may be launched while what it depends on still runs, and what depends on it before it ends
    (`dependent.py`)."""

    source: str
    tasks: Expr
    warps: int = 4
    stages: int = 1
    label: str = ""
    blocks: int = 1
    early: bool = True


@dataclass(frozen=True)
class TritonProgram:
    """One launch. Its arguments are pointers to elements of the dtypes in `buffers`, then numbers of the types in
    `sizes` (`i32` or `i64`), which are the extents `symbols`. `forms` are in order of preference: the first that fits
    the target is taken. `key` says what it computes, on which extents, in a name that does not depend on what else
    there is; `about` says it to people. `library` is a library's call that does the same, where there is one, for
    tuning to choose; `call`, where it is there, is to run in the place of the program where the library is."""

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
