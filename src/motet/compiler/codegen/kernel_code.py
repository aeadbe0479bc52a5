"""What a back end gives back for a kernel: code, the phases that run it, and the memory that they need."""

from __future__ import annotations

from dataclasses import dataclass, field

from motet.artifact.schema import Expr
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.schedule import KernelSchedule


@dataclass(frozen=True)
class Phase:
    """One parallel section: `symbol(buffers, sizes, begin, end, scratch)` over `[0, tasks)`.
    A phase begins when the one before has ended. `buffers` are those that it takes of the kernel's, by their
    numbers; None: all."""

    symbol: str
    tasks: Expr
    buffers: tuple[int, ...] | None = None


@dataclass(frozen=True)
class KernelCode:
    """What a code generator returns for a kernel.

    `llvm` is LLVM IR (llvmlite's version) without triple or data layout, defining each phase's symbol as
    `void symbol(ptr buffers, ptr sizes, i64 begin, i64 end, ptr scratch)`: `buffers` is an array of pointers (the
    kernel's externals, then `workspaces`), `sizes` an array of i64 (the kernel's symbols). `scratch` bytes, 64-byte
    aligned, belong to the calling thread; `workspaces` (bytes each, 64-byte aligned) to the whole invocation.
    `packings` maps a constant's index in `Kernel.values` to the layout in which the code expects it. `updates` are
    pairs of an argument and a result, as positions in `buffers`, that may be the same memory. Where a call may fail in
    the kernel, `checks` are the texts of what may fail, and the last buffer, behind the workspaces, is its status:
    words, zero before the call, that a task whose check fails writes to: the check's number, from 1, the index and the
    extent that it compared (an extent of -1: neither). `schedule` is what was chosen for the kernel with the key `key`
    (`key_of`), if its class has schedules.
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
    schedule: KernelSchedule | None = None
