"""Chooses the code generator of a kernel: the first class, fastest first, that takes it."""

from __future__ import annotations

from dataclasses import replace

from motet.compiler.codegen.cpu.conv import convolution, depthwise, direct
from motet.compiler.codegen.cpu.gemm import contraction
from motet.compiler.codegen.cpu.gemm_int8 import products as dot_products
from motet.compiler.codegen.cpu.gemm_int8 import reading as dot_reading
from motet.compiler.codegen.cpu.in_place import find_updates
from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.kernels.kernel import Kernel, KernelCode
from motet.compiler.targets.cpu import CpuTarget, base_of

CLASSES = (dot_products, direct, contraction, convolution, depthwise, loops)


def generate(kernel: Kernel, target: CpuTarget) -> KernelCode | None:
    """Code for `kernel`, or None where only the generic path takes it. What gains nothing by the instructions that
    `target` has beyond its base is the base's code."""
    if not improves_on_base(kernel, target):
        target = base_of(target)
    empty = any(0 in stage.sizes for stage in kernel.stages)
    for generator in (loops,) if empty else CLASSES:  # the others divide by extents
        code = generator.emit(kernel, target)
        if code is not None:
            return replace(code, updates=find_updates(kernel, code))
    return None


def improves_on_base(kernel: Kernel, target: CpuTarget) -> bool:
    """Whether the instructions that `target` has beyond its base make `kernel` faster."""
    return bool(target.base) and dot_reading.takes(kernel, target)


