"""Runs the LLVM IR of launches on the processor: each thread of a block is a thread here, with barriers and shuffles
that wait for the others, and functions of libdevice from the C library."""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from tests.prepared import load_mlir

from motet.artifact.dtypes import DTYPES
from motet.artifact.expressions import evaluate
from motet.compiler import pipeline
from motet.compiler.build.parameters import pack_parameters
from motet.compiler.build.partitioning import partition
from motet.compiler.build.variant import compile_kernels
from motet.compiler.codegen.backends import backend_of
from motet.compiler.codegen.nvvm.program import LaunchFunction, NvvmCode
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions
from motet.compiler.scheduling.schedule import ParameterStore, schedule_function
from motet.compiler.scheduling.signatures import function_shapes, read_signature
from motet.compiler.targets.families import resolve_target

Array = np.ndarray[Any, np.dtype[Any]]
WARP = 32
_PATIENCE = 120  # seconds that a thread waits for the others
_MODES = ("bfly", "up", "down", "idx")


def run_launches(text: str, inputs: Sequence[Array], target: str = "cuda:sm_90a") -> list[Array]:
    """The results of @main of `text`, all of whose kernels are launches as they were written."""
    program = load_mlir(text, "test.mlir")
    backend = backend_of(resolve_target(target))
    with program.module.context, ir.Location.unknown():
        pipeline.normalise(program)
        kernels = partition(program)
        functions = public_functions(program.module)
        compiled = compile_kernels(functions, kernels, backend)
        shapes = function_shapes(functions[0], kernels.functions)
        store = ParameterStore(program.parameters)
        schedule = schedule_function(functions[0], shapes, compiled, store)
        arrays, entries = pack_parameters(store)
        signature = read_signature(functions[0], shapes)
    made: dict[str, LaunchFunction] = {}
    for entry in compiled.values():
        assert isinstance(entry.code, NvvmCode), entry.code.kind
        made |= {function.symbol: function for function in entry.code.functions}
    symbols = {symbol.name: inputs[symbol.input].shape[symbol.axis] for symbol in signature.symbols}
    shapes = [[evaluate(size, symbols) for size in spec.shape] for spec in signature.results]
    results = [np.full(shape, 90, DTYPES[spec.dtype]) for shape, spec in zip(shapes, signature.results, strict=True)]
    given = [np.ascontiguousarray(array).copy() for array in inputs]
    memories = {
        "input": given, "result": results, "parameter": [np.ascontiguousarray(arrays[e.key]) for e in entries],
        "arena": [np.full(evaluate(schedule.arena, symbols) + 64, 0xA5, np.uint8)],
    }
    for command in schedule.commands:
        places = [schedule.buffers[index] for index in command.buffers]
        pointers = [
            memories[place.kind][place.index if place.kind != "arena" else 0].ctypes.data
            + evaluate(place.offset, symbols) for place in places
        ]
        if command.op == "copy":
            ctypes.memmove(pointers[1], pointers[0], evaluate(places[1].bytes, symbols))
            continue
        sizes = [evaluate(size, symbols) for size in command.sizes]
        _Block(made[command.kernel]).run(evaluate(command.tasks, symbols), pointers, sizes)
    for before, after in zip(inputs, given, strict=True):
        np.testing.assert_array_equal(before, after, "an input was written to")
    return results


class _Block:
    """A function, and the threads of one block of it at a time."""

    def __init__(self, function: LaunchFunction) -> None:
        self.function = function
        self.local = threading.local()
        self.barrier = threading.Barrier(function.threads)
        warps = [min(WARP, function.threads - first) for first in range(0, function.threads, WARP)]
        self.warps = [threading.Barrier(count) for count in warps]
        self.lanes = np.zeros(function.threads, np.uint32)
        self.failures: list[BaseException] = []

    def run(self, tasks: int, pointers: list[int], sizes: list[int]) -> None:
        engine = self._engine()
        address = engine.get_function_address(self.function.symbol)
        kinds = [ctypes.c_void_p] * len(pointers) + [ctypes.c_int64] * len(sizes) + [ctypes.c_void_p] * 2
        entry = ctypes.CFUNCTYPE(None, *kinds)(address)

        def thread(number: int) -> None:
            self.local.tid = number
            try:
                for block in range(tasks):
                    self.local.bid = block
                    entry(*pointers, *sizes, None, None)
                    self.barrier.wait(_PATIENCE)
            except threading.BrokenBarrierError as error:
                self.failures.append(error)

        self.tasks = tasks
        threads = [threading.Thread(target=thread, args=(n,)) for n in range(self.function.threads)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert not self.failures, "threads of a block did not all reach a barrier"

    # -- what the code calls ---------------------------------------------------------------------

    def _shuffle(self, mode: str, value: int, amount: int, clamp: int) -> int:
        """PTX ISA, shfl.sync, with no parts of a warp: the lane's own value where there is no other."""
        number = self.local.tid
        warp, lane = divmod(number, WARP)
        self.lanes[number] = value & 0xFFFFFFFF
        self.warps[warp].wait(_PATIENCE)
        least, most = (clamp & 31, None) if mode == "up" else (None, clamp & 31)
        source = {"bfly": lane ^ amount, "up": lane - amount, "down": lane + amount, "idx": amount & 31}[mode]
        inside = source >= (least or 0) if most is None else source <= most
        there = warp * WARP + source
        self.valid = inside
        self.local.valid = inside
        found = int(self.lanes[there if inside and 0 <= there < self.function.threads else number])
        self.warps[warp].wait(_PATIENCE)
        return found

    def _callbacks(self) -> dict[str, Any]:
        word = ctypes.c_int32
        give: dict[str, Any] = {
            "emu_tid": ctypes.CFUNCTYPE(word)(lambda: self.local.tid),
            "emu_ctaid": ctypes.CFUNCTYPE(word)(lambda: self.local.bid),
            "emu_nctaid": ctypes.CFUNCTYPE(word)(lambda: self.tasks),
            "emu_barrier": ctypes.CFUNCTYPE(None, word)(lambda _: self.barrier.wait(_PATIENCE) and None),
            "emu_valid": ctypes.CFUNCTYPE(word)(lambda: int(self.local.valid)),
        }
        for mode in _MODES:
            give[f"emu_shuffle_{mode}"] = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, word, word)(
                lambda value, amount, clamp, mode=mode: self._shuffle(mode, value, amount, clamp)
            )
        return give

    def _engine(self) -> Any:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = llvm.parse_assembly(_for_processor(self.function))
        module.verify()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1
        )
        engine = llvm.create_mcjit_compiler(module, machine)
        self.kept = self._callbacks()
        for name, callback in self.kept.items():
            llvm.add_symbol(name, ctypes.cast(callback, ctypes.c_void_p).value)
            if any(function.name == name for function in module.functions):
                engine.add_global_mapping(module.get_function(name), ctypes.cast(callback, ctypes.c_void_p).value)
        engine.finalize_object()
        return engine


def _for_processor(function: LaunchFunction) -> str:
    """The IR with one address space, and functions of the emulator for what GPUs have instructions for."""
    text = function.llvm.replace("ptx_kernel ", "")
    text = re.sub(r" ?addrspace\(\d+\)(?=[ )*]|$)", "", text, flags=re.MULTILINE)
    text = re.sub(r"addrspacecast (ptr %?[\w.]+) to ptr", r"bitcast \1 to ptr", text)
    memory = f"@motet_shared = global [{function.shared + 16} x i8] zeroinitializer"
    text = text.replace("@motet_shared = external global [0 x i8]", memory)
    text = re.sub(r"@llvm\.nvvm\.read\.ptx\.sreg\.(\w+?)(?:\.x)?\(", r"@emu_\1(", text)
    text = text.replace("@llvm.nvvm.barrier.cta.sync.aligned.all(", "@emu_barrier(")
    text = re.sub(r"@__nv_(\w+)\(", r"@\1(", text)
    text = re.sub(r'syncscope\("device"\) ', "", text)
    text = re.sub(r"@llvm\.nvvm\.shfl\.sync\.(\w+)\.(\w+)\(", r"@emu_\1_\2(", text)
    text = re.sub(r"^declare .*@emu_(?:bfly|up|down|idx)_.*$", "", text, flags=re.MULTILINE)
    return text + _SHUFFLES


def _shuffle_text() -> str:
    lines = ["declare i32 @emu_valid()"]
    for mode in _MODES:
        lines.append(f"declare i32 @emu_shuffle_{mode}(i32, i32, i32)")
        for kind, suffix in (("i32", "i32"), ("float", "f32")):
            lines += [
                f"define internal {kind} @emu_{mode}_{suffix}(i32 %mask, {kind} %v, i32 %a, i32 %c) {{",
                f"  %i = bitcast {kind} %v to i32",
                f"  %r = call i32 @emu_shuffle_{mode}(i32 %i, i32 %a, i32 %c)",
                f"  %o = bitcast i32 %r to {kind}", f"  ret {kind} %o", "}",
                f"define internal {{ {kind}, i1 }} @emu_{mode}_{suffix}p(i32 %mask, {kind} %v, i32 %a, i32 %c) {{",
                f"  %i = bitcast {kind} %v to i32",
                f"  %r = call i32 @emu_shuffle_{mode}(i32 %i, i32 %a, i32 %c)",
                f"  %o = bitcast i32 %r to {kind}", "  %f = call i32 @emu_valid()", "  %b = trunc i32 %f to i1",
                f"  %x = insertvalue {{ {kind}, i1 }} poison, {kind} %o, 0",
                f"  %y = insertvalue {{ {kind}, i1 }} %x, i1 %b, 1", f"  ret {{ {kind}, i1 }} %y", "}",
            ]
    return "\n".join(["", *lines, ""])


_SHUFFLES = _shuffle_text()
