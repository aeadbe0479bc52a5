"""Runs emitted kernels in this process: object code by LLVM's JIT, numpy arrays as buffers."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np

from motet.artifact.schema import Expr
from motet.compiler.kernels.kernel import Kernel, Packing, Size, Value
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.targets.cpu import CPU_TARGETS, X86_64_V3, X86_64_V4, CpuTarget
from motet.compiler.targets.native import host_processor

DTYPES: dict[str, Any] = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "index": np.int64,
    "ui8": np.uint8,
    "ui16": np.uint16,
    "ui32": np.uint32,
    "ui64": np.uint64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
PHASE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@cache
def levels() -> tuple[CpuTarget, ...]:
    """All x86-64 levels whose code runs here."""
    found = host_processor()[1]
    return tuple(
        target for target in CPU_TARGETS.values()
        if target.triple.startswith("x86_64") and found.issuperset(target.requires)
        and not any(feature.startswith("amx") for feature in target.requires)
    )


@cache
def native_target() -> CpuTarget:
    """The best x86-64 level that this machine has."""
    _initialize()
    features = llvm.get_host_cpu_features()
    return X86_64_V4 if features.get("avx512vl") and features.get("avx512dq") else X86_64_V3


def evaluate(expression: Expr, symbols: Mapping[str, int]) -> int:
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return symbols[expression]
    operator, a, b = expression[0], evaluate(expression[1], symbols), evaluate(expression[2], symbols)
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "//": lambda: a // b,
        "ceildiv": lambda: -(-a // b),
        "max": lambda: max(a, b),
        "min": lambda: min(a, b),
    }[operator]()


def extents(shape: Sequence[Size], symbols: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(size, symbols) for size in shape)


def compile_llvm(text: str, target: CpuTarget | None = None) -> Any:
    """An execution engine that holds the module; keep it while its functions are used."""
    _initialize()
    target = target or native_target()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=3,
        reloc="pic",
        codemodel="jitdefault",
        abiname=target.abi,
    )
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def object_code(text: str, target: CpuTarget) -> bytes:
    """The object file of a module for `target`, which need not be this machine's."""
    _initialize()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", abiname=target.abi
    )
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    return machine.emit_object(module)


FILLING, GUARD = 0xA5, 256


def aligned(size: int, alignment: int = 64) -> np.ndarray:
    """`size` bytes at a multiple of `alignment`, full of a pattern that is no number anyone expects, and as much of it
    before and behind."""
    raw = np.full(size + alignment + 2 * GUARD, FILLING, np.uint8)
    start = GUARD + -(raw.ctypes.data + GUARD) % alignment
    return raw[start : start + size]


def check_guards(buffer: np.ndarray) -> None:
    """Fails where something was written beside what `aligned` gave."""
    raw: Any = buffer.base
    start = buffer.ctypes.data - raw.ctypes.data
    for beside in (raw[start - GUARD : start], raw[start + buffer.nbytes :][:GUARD]):
        assert (beside == FILLING).all(), "written beside a buffer"


def stored(array: np.ndarray, value: Value) -> np.ndarray:
    """The array's bytes as the value lies in memory."""
    data = np.ascontiguousarray(np.transpose(array.astype(DTYPES[value.dtype], copy=False), value.order))
    result = aligned(data.nbytes)
    result[:] = data.reshape(-1).view(np.uint8)
    return result


def pack(array: np.ndarray, packing: Packing) -> np.ndarray:
    """`array` in the layout that `packing` describes."""
    array = np.transpose(array, packing.permutation)
    multiples = packing.multiples or packing.blocks
    shape: list[int] = []
    for extent, block, multiple in zip(array.shape, packing.blocks, multiples, strict=True):
        shape += [-(-extent // multiple) * multiple // block, block]
    widths = [(0, -extent % multiple) for extent, multiple in zip(array.shape, multiples, strict=True)]
    return np.ascontiguousarray(np.transpose(np.pad(array, widths).reshape(shape), packing.split_permutation))


class Executable:
    """A compiled kernel. Calling it runs all its phases, the tasks of each in `split` ranges."""

    def __init__(self, kernel: Kernel, code: KernelCode, target: CpuTarget | None = None) -> None:
        self.kernel = kernel
        self.code = code
        self._engine = compile_llvm(code.llvm, target)
        self._phases = [PHASE(self._engine.get_function_address(phase.symbol)) for phase in code.phases]

    def prepare(self, arrays: Sequence[np.ndarray], symbols: Mapping[str, int] | None = None) -> Invocation:
        return Invocation(self, arrays, symbols or {})

    def __call__(
        self, *arrays: np.ndarray, symbols: Mapping[str, int] | None = None, split: int = 1
    ) -> list[np.ndarray]:
        invocation = self.prepare(arrays, symbols)
        invocation.run(split)
        return invocation.results()


class Invocation:
    """One set of buffers. `run` may be called again and again."""

    def __init__(
        self, executable: Executable, arrays: Sequence[np.ndarray], symbols: Mapping[str, int]
    ) -> None:
        self._executable = executable
        kernel, code = executable.kernel, executable.code
        self._symbols = symbols
        self._buffers: list[np.ndarray] = []
        given = iter(arrays)
        for index in kernel.externals:
            value = kernel.values[index]
            if value.role == "result":
                count = int(np.prod(extents(value.shape, symbols), dtype=np.int64))
                self._buffers.append(aligned(count * np.dtype(DTYPES[value.dtype]).itemsize))
                continue
            array = next(given)
            packing = code.packings.get(index)
            if packing is None:
                self._buffers.append(stored(array, value))
            else:
                packed = pack(array.astype(DTYPES[value.dtype], copy=False), packing)
                buffer = aligned(packed.nbytes)
                buffer[:] = packed.reshape(-1).view(np.uint8)
                self._buffers.append(buffer)
        self._workspaces = [aligned(evaluate(size, symbols)) for size in code.workspaces]
        self.status = np.zeros(4, np.int64)
        pointers = [buffer.ctypes.data for buffer in (*self._buffers, *self._workspaces)]
        pointers += [self.status.ctypes.data] if code.checks else []
        self._pointers = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        sizes = [symbols[name] for name in kernel.symbols]
        self._sizes = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
        self._scratch = aligned(max(64, code.scratch))
        self.tasks = [evaluate(phase.tasks, symbols) for phase in code.phases]

    def run(self, split: int = 1) -> None:
        """All phases in turn; each as `split` calls over ranges of tasks, the last range first."""
        sizes, scratch = ctypes.addressof(self._sizes), self._scratch.ctypes.data
        phases = zip(self._executable._phases, self._executable.code.phases, self.tasks, strict=True)
        for phase, stated, tasks in phases:
            taken = range(len(self._pointers)) if stated.buffers is None else stated.buffers
            own = (ctypes.c_void_p * max(1, len(taken)))(*(self._pointers[number] for number in taken))
            pointers = ctypes.addressof(own)
            bounds = [tasks * part // split for part in range(split + 1)]
            for begin, end in reversed(list(itertools.pairwise(bounds))):
                if begin < end:
                    phase(pointers, sizes, begin, end, scratch)

    def move_results(self, offset: int) -> None:
        """Give results new buffers, `offset` bytes after a multiple of 64."""
        kernel = self._executable.kernel
        for number, index in enumerate(kernel.externals):
            if kernel.values[index].role == "result":
                self._buffers[number] = aligned(self._buffers[number].nbytes + offset)[offset:]
                self._pointers[number] = self._buffers[number].ctypes.data

    def move_arguments(self, offset: int) -> None:
        """Give arguments new buffers, `offset` bytes after a multiple of 64."""
        kernel = self._executable.kernel
        for number, index in enumerate(kernel.externals):
            if kernel.values[index].role == "argument":
                moved = aligned(self._buffers[number].nbytes + offset)[offset:]
                moved[:] = self._buffers[number]
                self._buffers[number] = moved
                self._pointers[number] = moved.ctypes.data

    def share(self, argument: int, result: int) -> None:
        """Put a result where an argument is; both are positions among the kernel's externals."""
        self._buffers[result] = self._buffers[argument]
        self._pointers[result] = self._pointers[argument]

    def results(self) -> list[np.ndarray]:
        kernel = self._executable.kernel
        found: list[np.ndarray] = []
        for buffer in (*self._workspaces, self._scratch):
            check_guards(buffer)
        for buffer, index in zip(self._buffers, kernel.externals, strict=True):
            value = kernel.values[index]
            check_guards(buffer)
            if value.role != "result":
                continue
            shape = extents(value.shape, self._symbols)
            physical = buffer.view(DTYPES[value.dtype]).reshape([shape[axis] for axis in value.order])
            found.append(np.transpose(physical, np.argsort(value.order)))
        return found


def build(
    emit: Callable[[Kernel, CpuTarget], KernelCode | None], kernel: Kernel, target: CpuTarget | None = None
) -> Executable:
    """The kernel, emitted and compiled; fails where the class does not take it."""
    code = emit(kernel, target or native_target())
    if code is None:
        raise AssertionError(f"kernel {kernel.name} was not taken")
    return Executable(kernel, code, target)
