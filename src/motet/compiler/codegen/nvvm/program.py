"""The code of a launch that runs as written."""

from __future__ import annotations

from dataclasses import dataclass

from motet.artifact.schema import Expr
from motet.compiler.kernels.kernel_code import KernelCode


@dataclass(frozen=True)
class LaunchFunction:
    """One function that the driver launches, with blocks of `threads` threads and `shared` bytes of workgroup memory.
    `llvm` is LLVM IR that defines `symbol`; its parameters are pointers to `buffers` (indices of the kernel's buffers),
    `sizes` 64-bit numbers, and two unused pointers."""

    symbol: str
    llvm: str
    buffers: tuple[int, ...]
    sizes: int
    threads: int
    shared: int
    tasks: Expr


@dataclass(frozen=True)
class NvvmCode(KernelCode):
    """A launch for a GPU: one function for each phase; `llvm` is empty."""

    functions: tuple[LaunchFunction, ...] = ()
