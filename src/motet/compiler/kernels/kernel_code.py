"""The result of a back end for a kernel: code, the phases that run it, and the memory that they need."""

from __future__ import annotations

from dataclasses import dataclass, field

from motet.artifact.schema import Expr
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.schedule import KernelSchedule


@dataclass(frozen=True)
class Phase:
    """One parallel section: `symbol(buffers, sizes, begin, end, scratch)` over tasks `[0, tasks)`. A phase begins when
    the previous one has ended. `buffers` are the indices of the kernel's buffers that it takes; None: all."""

    symbol: str
    tasks: Expr
    buffers: tuple[int, ...] | None = None


@dataclass(frozen=True)
class KernelCode:
    """The result of a code generator for a kernel.

    `llvm` is LLVM IR (llvmlite's version) without triple or data layout, which defines each phase's symbol as
    `void symbol(ptr buffers, ptr sizes, i64 begin, i64 end, ptr scratch)`. `buffers` is an array of pointers (the
    kernel's externals, then `workspaces`), `sizes` an array of i64 (the kernel's symbols). `scratch` bytes, 64-byte
    aligned, belong to the calling thread, `workspaces` (bytes each, 64-byte aligned) to the whole call. `packings` maps
    a constant's index in `Kernel.values` to the layout that the code expects. `updates` are pairs of an argument and a
    result, as positions in `buffers`, that may share memory. If the kernel can fail at run time, `checks` are the texts
    of its checks, and the last buffer, after the workspaces, is its status: words, zero before the call, to which a
    task whose check fails writes the check's number, from 1, and the index and extent that it compared (extent -1:
    neither). `schedule` is the schedule of the kernel with the key `key` (`key_of`), if its class has schedules, and
    `origin` the record that it was taken from, if any. `parts` are further modules of LLVM IR, which `llvm` declares
    functions of.
    """

    kind: str
    llvm: str
    phases: tuple[Phase, ...]
    scratch: int = 0
    workspaces: tuple[Expr, ...] = ()
    packings: dict[int, Packing] = field(default_factory=dict[int, Packing])
    flops: int = 0
    bytes: int = 0
    updates: tuple[tuple[int, int], ...] = ()
    checks: tuple[str, ...] = ()
    key: str = ""
    parts: tuple[str, ...] = ()
    schedule: KernelSchedule | None = None
    origin: str = ""
