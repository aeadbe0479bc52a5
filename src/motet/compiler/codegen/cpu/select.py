"""Selects the class that generates code for a kernel: the first, fastest first, that supports it, or the one that a
schedule names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from motet.compiler.codegen.cpu.attention import attention
from motet.compiler.codegen.cpu.attention import plan as attention_plan
from motet.compiler.codegen.cpu.conv import (
    convolution,
    depthwise,
    depthwise_bytes,
    direct,
    dynamic,
    interleave,
    plane_emitter,
)
from motet.compiler.codegen.cpu.gemm import contraction
from motet.compiler.codegen.cpu.gemm_blocks import products as block_products
from motet.compiler.codegen.cpu.in_place import find_updates
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.codegen.cpu.nest import nest
from motet.compiler.codegen.cpu.products import bfloat_reading, byte_reading, products
from motet.compiler.codegen.cpu.products.instructions import BFLOATS, BYTES, ways_of
from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.kernels.kernel import Kernel, key_of
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import KernelSchedule, Reason
from motet.compiler.targets.cpu import CpuTarget, base_of

Classes = tuple[KernelClass[Any, Any], ...]  # each class has its own types of descriptions and schedules

CLASSES: Classes = (
    attention.CLASS, products.INTEGER_CLASS, products.BFLOAT_CLASS, block_products.CLASS, direct.CLASS, dynamic.CLASS,
    contraction.CLASS, convolution.CLASS, depthwise_bytes.CLASS, depthwise.CLASS, dynamic.DEPTHWISE_CLASS,
    plane_emitter.CLASS, interleave.CLASS, loops.CLASS, nest.CLASS,
)


def generate(kernel: Kernel, target: CpuTarget, given: KernelSchedule | None = None) -> KernelCode | None:
    """Code for `kernel` by the schedule `given`, which must be legal, or by the one that the heuristics choose; None if
    only the generic path supports it. A kernel that does not profit from `target`'s instructions beyond its base level
    gets the base level's code."""
    target = own_target(kernel, target)
    for each in classes_of(kernel):
        if given is not None and not isinstance(given, each.schedule):
            continue
        found = each.match(kernel, target)
        schedule = given if given is not None or found is None else each.choose(found, target)
        if found is None or schedule is None:
            continue
        code = each.emit(found, schedule, target)
        if code is not None:
            return replace(code, updates=find_updates(kernel, code), key=key_of(kernel), schedule=schedule)
    return None


def check(schedule: KernelSchedule, kernel: Kernel, target: CpuTarget) -> Sequence[Reason]:
    """Why `schedule` is not legal for `kernel` on `target`; empty if it is."""
    target = own_target(kernel, target)
    taken = {each.name: (each, found) for each in classes_of(kernel) if (found := each.match(kernel, target))}
    for each, found in taken.values():
        if isinstance(schedule, each.schedule):
            return each.check(found, schedule, target)
    name = str(type(schedule).__struct_config__.tag)
    return [Reason("class", name, f"one of {', '.join(taken)}, which take this kernel")]


def own_target(kernel: Kernel, target: CpuTarget) -> CpuTarget:
    """The CPU level whose code `kernel` gets if `target` is compiled for."""
    while target.base and not improves_on_base(kernel, target):
        target = base_of(target)
    return target


def classes_of(kernel: Kernel) -> Classes:
    """The classes that may support a kernel. Kernels without elements have only `loops` and `nest`: the others divide
    by extents."""
    return (loops.CLASS, nest.CLASS) if any(0 in stage.sizes for stage in kernel.stages) else CLASSES


def improves_on_base(kernel: Kernel, target: CpuTarget) -> bool:
    """Whether the instructions of `target` beyond its base level make `kernel` faster."""
    if not target.base:
        return False
    base = base_of(target)
    if ways_of(target, BYTES) != ways_of(base, BYTES) and byte_reading.match(kernel, target):
        return True
    if target.has("avx512vnni") != base.has("avx512vnni") and depthwise_bytes.takes(kernel, target):
        return True
    if ways_of(target, BFLOATS) == ways_of(base, BFLOATS):
        return False
    return bool(bfloat_reading.match(kernel, target)) or attention_plan.improves_on_base(kernel, target)
