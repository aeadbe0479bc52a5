"""Partitions a program into kernels, each a function, and reads those functions into stages where possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from motet.compiler.build.equal_extents import equal_extents
from motet.compiler.codegen.backend import Backend
from motet.compiler.codegen.backends import backend_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.launches import LAUNCH
from motet.compiler.ir.program import Program
from motet.compiler.kernels.attention.matching import is_attention
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.multi_gemm import ProductShape
from motet.compiler.kernels.reader.extents import read_composed
from motet.compiler.kernels.reader.reading import Unreadable
from motet.compiler.kernels.reader.written_schedules import refuse_lost
from motet.compiler.kernels.recurrence import Recurrence
from motet.compiler.passes.fuse.outline_kernels import KIND
from motet.compiler.passes.running import run_named
from motet.compiler.scheduling.shapes import Shapes
from motet.compiler.scheduling.signatures import function_shapes
from motet.compiler.targets.family import Target


@dataclass
class Kernels:
    """The kernels of a partitioned program: their functions, and the stages of those that could be read."""

    functions: dict[str, ir.Operation]
    readable: dict[str, Kernel] = field(default_factory=dict[str, Kernel])
    reasons: dict[str, str] = field(default_factory=dict[str, str])  # why the others could not be read
    shapes: dict[str, Shapes] = field(default_factory=dict[str, Shapes])  # of public functions, see `shapes_of`

    def shapes_of(self, function: ir.Operation) -> Shapes:
        """The extents of every value of a public function that calls the kernels; read once. Raises CompileError for
        those that depend on data."""
        name = symbol_name(function)
        if name not in self.shapes:
            self.shapes[name] = function_shapes(function, self.functions)
        return self.shapes[name]


@dataclass(frozen=True)
class Partitioned:
    """A program and its kernels, for each target; `gpu_program`, possibly `program` itself, is for targets whose
    programs `fuse-for-gpu` rewrites. Both programs share their parameters."""

    program: Program
    kernels: Kernels
    gpu_program: Program
    gpu_kernels: Kernels

    def of(self, target: Target) -> tuple[Program, Kernels]:
        """The program for `target`, and its kernels."""
        fused = backend_of(target).fuses_attention
        return (self.gpu_program, self.gpu_kernels) if fused else (self.program, self.kernels)


def partition_for(program: Program, targets: Sequence[Target]) -> Partitioned:
    """Partition the normalised `program` for all of `targets`."""
    gpu_program = fuse_program(program, targets)
    kernels = partition(program)
    _refuse_lost(program, kernels)
    gpu_kernels = partition_for_gpu(gpu_program, program, kernels)
    if gpu_program is not program:
        _refuse_lost(gpu_program, gpu_kernels)
    return Partitioned(program, kernels, gpu_program, gpu_kernels)


def _refuse_lost(program: Program, kernels: Kernels) -> None:
    generic = [function for name, function in kernels.functions.items() if name not in kernels.readable]
    refuse_lost(program.module, kernels.readable.values(), generic)


def partition(program: Program) -> Kernels:
    """Outline kernels as functions, and read each into stages where possible."""
    run_named("outline", program)
    return read_kernels(program)


def fuse_program(program: Program, targets: Sequence[Target]) -> Program:
    """Fuse `program`, normalised, in place for those of `targets` whose back ends get `fuse-for-cpu`, and return it as
    the others get it (`fuse-for-gpu`): `program` itself if all targets are of
    one kind, or if there is nothing to fuse."""
    backends = [backend for backend in map(backend_of, targets) if backend.fuses_attention]
    others = [backend for backend in map(backend_of, targets) if not backend.fuses_attention]
    if not backends:
        _run_cpu_passes(program, others)
        return program
    if len(backends) == len(targets):
        _run_gpu_passes(program, backends)
        return program
    text = program.module.operation.get_asm(enable_debug_info=True)
    copy = Program(ir.Module.parse(text, context=program.module.context), program.parameters, program.placement)
    changed = _run_gpu_passes(copy, backends)
    program.parameters = copy.parameters  # both share them, with those that were made of others
    return copy if _run_cpu_passes(program, others) or changed else program


def _run_cpu_passes(program: Program, backends: Sequence[Backend]) -> bool:
    def attention_pays(kernel: Kernel) -> bool:
        return is_attention(kernel) and all(backend.attention_pays(kernel) for backend in backends)

    return run_named("fuse-for-cpu", program, {"fuse-attention": {"accepts": attention_pays}})


def _run_gpu_passes(program: Program, backends: Sequence[Backend]) -> bool:
    def attention_pays(kernel: Kernel) -> bool:
        return is_attention(kernel) and all(backend.attention_pays(kernel) for backend in backends)

    def multi_gemm_pays(products: Sequence[ProductShape]) -> bool:
        return all(backend.multi_gemm_pays(products) for backend in backends)

    def recurrence_pays(found: Recurrence) -> bool:
        return all(backend.recurrence_pays(found) for backend in backends)

    options = {
        "fuse-attention": {"accepts": attention_pays}, "fuse-multi-gemm": {"accepts": multi_gemm_pays},
        "unroll-loops": {"keeps": recurrence_pays},
    }
    return run_named("fuse-for-gpu", program, options)


def partition_for_gpu(gpu_program: Program, program: Program, kernels: Kernels) -> Kernels:
    """Partition `gpu_program` if it differs from `program`, whose kernels are `kernels`. Both share their parameters:
    constants folded for one are not folded again."""
    if gpu_program is program:
        return kernels
    gpu_program.parameters = program.parameters
    return partition(gpu_program)


def read_kernels(program: Program) -> Kernels:
    """The kernels of a program in which they are functions already."""
    functions = {
        symbol_name(entry.operation): entry.operation
        for entry in program.module.body.operations
        if KIND in entry.operation.attributes
    }
    public = [
        entry.operation for entry in program.module.body.operations
        if entry.operation.name == "func.func" and KIND not in entry.operation.attributes
    ]
    kernels = Kernels(functions)
    equal = equal_extents(public, kernels.shapes_of)
    for name, function in functions.items():
        if LAUNCH in function.attributes:
            kernels.reasons[name] = "a launch as it was written"
            continue
        try:
            kernels.readable[name] = read_composed(function, equal.get(name, ()))
        except Unreadable as reason:
            kernels.reasons[name] = str(reason)
    return kernels
