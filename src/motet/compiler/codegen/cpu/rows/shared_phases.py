"""Phases of equal stages share one function: the pieces of a concatenation, each a stage at another place in memory.

    stage 3 reads value 7, writes value 0 from element 96 on      →   void k_3(buffers, …) {
    stage 4 reads value 8, writes value 0 from element 128 on           k_shared0({buffers[7], buffers[0] + 384}, …) }

The function has the signature of a phase, so that a phase that shares it only gathers its buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.addressing import Frame
from motet.compiler.codegen.cpu.emit.builder import I8, PTR
from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Access, Kernel, Stage, item_bytes
from motet.compiler.kernels.strides import memory_strides

_ALIGNMENT = 64  # bytes, of every buffer, which code relies on


@dataclass(frozen=True)
class SharedStage:
    """`kernel` has one stage of another kernel and its values, each from its first used element on; `numbers` are those
    values there, and `bases` the bytes to these elements."""

    kernel: Kernel
    numbers: tuple[int, ...]
    bases: tuple[int, ...]

    @property
    def key(self) -> object:
        """Equal for stages that share a function."""
        return self.kernel


def shared_stage(kernel: Kernel, stage: Stage) -> SharedStage | None:
    """`stage` as a kernel by itself; None if its code depends on more than its own operands, or if its operands begin
    at places that are less aligned than buffers."""
    if kernel.symbols or kernel.checks:
        return None
    accesses = [*stage.inputs, *stage.outputs, *(init for init in stage.inits if isinstance(init, Access))]
    numbers = tuple(dict.fromkeys(access.value for access in accesses))
    if len(numbers) < len(accesses):
        return None  # one value at two places
    bases = tuple(_base(kernel, access) for access in accesses)
    if any(base % _ALIGNMENT for base in bases):
        return None
    moved = {old: new for new, old in enumerate(numbers)}
    written = {output.value for output in stage.outputs}

    def own(access: Access) -> Access:
        if access.padding is not None:
            return replace(access, value=moved[access.value])
        return Access(moved[access.value], tuple(Affine(entry.terms) for entry in access.map))

    found = replace(
        stage, source="", inputs=tuple(map(own, stage.inputs)), outputs=tuple(map(own, stage.outputs)),
        inits=tuple(own(init) if isinstance(init, Access) else init for init in stage.inits),
    )
    values = tuple(
        replace(kernel.values[number], role="result" if number in written else "argument") for number in numbers
    )
    return SharedStage(Kernel("", values, (found,)), numbers, bases)


def _base(kernel: Kernel, access: Access) -> int:
    """The bytes to the element that `access` has at the first point of its stage; 0 if it is padded."""
    if access.padding is not None:
        return 0
    value = kernel.values[access.value]
    strides = memory_strides(value)
    elements = sum(entry.constant * stride.factor for entry, stride in zip(access.map, strides, strict=True))
    return elements * item_bytes(value.dtype)


def emit_call(
    module: ir.Module, symbol: str, kernel: Kernel, workspaces: Mapping[int, int], shared: SharedStage, function: str
) -> None:
    """Define `symbol`, a phase of `kernel` that is a call of `function`, the phase of `shared.kernel`."""
    f = Frame(module, symbol, kernel, workspaces, {})
    places: Sequence[ir.Value] = [f.pointer(number) for number in shared.numbers]
    buffers: Any = f.alloca(ir.ArrayType(PTR, len(places)))
    buffers.type = PTR  # llvmlite gives it a typed pointer
    for number, (place, base) in enumerate(zip(places, shared.bases, strict=True)):
        f.store(f.at(place, base, I8), f.at(buffers, number, PTR), align=8)
    f.call(module.get_global(function), [buffers, *f.arguments[1:]])
    f.finish()
