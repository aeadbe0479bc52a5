"""Kernels of attention read from MLIR, and their arguments by the program's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.prepared import load_mlir
from tests.unit.compiler.codegen.cpu.harness import Executable, extents
from tests.unit.compiler.codegen.triton.attention_texts import Form, text

from motet.compiler import pipeline
from motet.compiler.build.partitioning import fuse_program, partition
from motet.compiler.codegen.cpu.attention.attention import CLASS
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.schedule import AttentionSchedule
from motet.compiler.targets.cpu import X86_64_V3, CpuTarget


@dataclass(frozen=True)
class AttentionKernel:
    """The only kernel of a program; `order` has the program's input for each argument of the kernel's function."""

    kernel: Kernel
    order: tuple[int, ...]

    def build(self, target: CpuTarget, schedule: AttentionSchedule | None = None) -> Executable:
        found = CLASS.match(self.kernel, target)
        assert found is not None
        chosen = schedule or CLASS.choose(found, target)
        assert chosen is not None and not CLASS.check(found, chosen, target)
        code = CLASS.emit(found, chosen, target)
        assert code is not None
        return Executable(self.kernel, code, target)

    def run(self, made: Executable, inputs: Sequence[np.ndarray], split: int = 1) -> np.ndarray:
        """The result in f64, for `inputs` of the program."""
        kernel = self.kernel
        symbols: dict[str, int] = {}
        for symbol in kernel.symbols:
            number, axis = map(int, symbol[1:].split("_"))
            symbols[symbol] = inputs[self.order[number]].shape[axis]
        arrays = [inputs[self.order[number]] for number in kernel.arguments]
        shapes = [extents(kernel.values[index].shape, symbols) for index in kernel.externals]
        shaped = [array.reshape(shape) for array, shape in zip(arrays, shapes, strict=False)]
        (result,) = made(*shaped, symbols=symbols, split=split)
        return result.astype("f8")


def attention_kernel(source: Form | str) -> AttentionKernel:
    """The kernel of a program that is one attention."""
    program = load_mlir(source if isinstance(source, str) else text(source), "test.mlir")
    with program.module.context, ir.Location.unknown():
        pipeline.normalise(program)
        fuse_program(program, [X86_64_V3])
        kernels = partition(program)
        (function,) = public_functions(program.module)
        operations = [entry.operation for entry in function.regions[0].blocks[0].operations]
        (call,) = [each for each in operations if each.name == "func.call"]
        order = tuple(_argument(value) for value in call.operands)
    (kernel,) = kernels.readable.values()
    return AttentionKernel(kernel, order)


def _argument(value: Any) -> int:
    """The number of the function's argument that `value` is, through reshapes."""
    while not isinstance(value.owner, ir.Block):
        value = value.owner.operands[0]
    return ir.BlockArgument(value).arg_number
