"""The output of the Triton code generators: a program's source, and its options for compilation and launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from msgspec import structs

from motet.artifact.library import LibraryCall
from motet.artifact.schema import Expr
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.targets.gpu import GpuTarget
from motet.compiler.tuning.kernels import Choice


@dataclass(frozen=True)
class FormTile:
    """The elements that a block or a thread computes at a time along a loop: `dims` are those of the launch's first
    stage that it runs over."""

    dims: tuple[int, ...]
    elements: int
    level: Literal["block", "thread"] = "block"


def tile_along(loops: Sequence[tuple[object, int]], elements: int) -> FormTile:
    """The tile of a block along `loops`, each with its dimension."""
    return FormTile(tuple(dim for _, dim in loops), elements)


@dataclass(frozen=True)
class Form:
    """One implementation of a program. `source` is a Python module that defines a function with the program's symbol
    under `triton.jit`; `tasks` is the one-dimensional grid; `stages` is the number of loop iterations in flight.
    `label` distinguishes a program's forms and is stable across versions, as tunings refer to it. Each `blocks` blocks
    of the grid, a divisor of `tasks`, form a cluster on neighbouring SMs (`clusters.py`). `early` means that it may
    start while its dependences still run, and its dependents before it ends (`programmatic_launch.py`). `tiles` are
    those of its loops, for schedules; `specialized` means that some warps load what others compute with."""

    source: str
    tasks: Expr
    warps: int = 4
    stages: int = 1
    label: str = ""
    blocks: int = 1
    early: bool = True
    tiles: tuple[FormTile, ...] = ()
    specialized: bool = False


@dataclass(frozen=True)
class TritonProgram:
    """One launch. Its arguments are pointers to elements of the dtypes in `buffers`, then the extents `symbols` as
    numbers of the types in `sizes` (`i32` or `i64`). `forms` are in order of preference: the first that fits the target
    is used. `key` identifies the computation and its extents independently of the surrounding program; `about`
    describes it to people. `dims` are the names of the dimensions of its first stage. `library` is an equivalent
    library call, if there is one, as a candidate for tuning; `call`, if set, replaces the program wherever the library
    is available."""

    symbol: str
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    forms: tuple[Form, ...]
    key: str = ""
    about: str = ""
    symbols: tuple[str, ...] = ()
    library: LibraryCall | None = None
    call: LibraryCall | None = None
    dims: tuple[str, ...] = ()


def ordered(program: TritonProgram, choice: Choice, target: GpuTarget) -> TritonProgram:
    """`program` with its fastest known form first, and with the library call that is to run."""
    found = choice.tunings.find(program.key, f"{target.family}:{target.name}") if program.key else None
    forms = sorted(program.forms, key=lambda form: form.label != found.form) if found else program.forms
    offered = None if choice.library == "none" else program.library
    algorithm = found.library if found else None
    taken = choice.library == "cublaslt" or algorithm is not None
    call = structs.replace(offered, algorithm=algorithm) if offered is not None and taken else None
    return replace(program, forms=tuple(forms), library=offered, call=call)


@dataclass(frozen=True)
class TritonCode(KernelCode):
    """A kernel's code for a GPU: one program for each phase; `llvm` is empty."""

    programs: tuple[TritonProgram, ...] = ()
