"""Selects the kernel class of an operation on whole tensors (`kernels/linalg_ext.py`)."""

from __future__ import annotations

from motet.compiler.codegen.cpu.emit.compute_types import Unsupported
from motet.compiler.codegen.cpu.ext import scans, scatters, sorts
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.translate import source_location
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.linalg_ext import read_whole
from motet.compiler.kernels.reader.reading import Unreadable
from motet.compiler.targets.cpu import CpuTarget
from motet.errors import CompileError

CLASSES = {"scan": scans.emit, "sort": sorts.emit, "scatter": scatters.emit}


def emit_whole(function: ir.Operation, target: CpuTarget) -> tuple[Kernel, KernelCode]:
    """The kernel of a function for which `is_whole` holds, and its code. Raises CompileError if no class supports
    it."""
    try:
        whole = read_whole(function)
        return whole.kernel, CLASSES[whole.kind](whole, target)
    except (Unreadable, Unsupported) as reason:
        name = symbol_name(function)
        raise CompileError(
            f"kernel {name}: no code can be made for host devices: {reason}", source_location(function)
        ) from None
