"""The memory that an operation reads and writes.

Memory is identified by the value that defines all of it, and the part of it that is accessed (`parts.py`): views are
resolved to their source. Different arguments are assumed not to overlap.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from motet.compiler.frontends.gpu.checks import LAUNCH, segments
from motet.compiler.frontends.gpu.kernels import DERIVED, IDS, within
from motet.compiler.frontends.gpu.parts import Part, part_of
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import symbol_name

_LOG = logging.getLogger("motet")
_NONE = (
    "memref.alloc", "memref.alloca", "memref.get_global", "memref.dim", "memref.cast", "memref.memory_space_cast",
    "memref.subview", "memref.expand_shape", "memref.collapse_shape", "memref.reinterpret_cast", "memref.view",
    "memref.transpose", "krnl.global", "gpu.wait", "gpu.alloc", "gpu.terminator", "gpu.return", "gpu.barrier",
    "gpu.shuffle", "gpu.dynamic_shared_memory", "gpu.printf", "gpu.yield", "func.return",
)  # fmt: skip
_PURE = (
    "arith.", "math.", "index.", "complex.", "affine.apply", "affine.min", "affine.max", "scf.yield", "scf.condition",
    "scf.reduce", "affine.yield", "linalg.yield", "cf.", *IDS, *DERIVED,
)  # fmt: skip
_WRITTEN_OPERANDS = {"memref.store": 1, "affine.store": 1, "memref.dealloc": 0, "gpu.dealloc": 0}


@dataclass(frozen=True)
class Effects:
    """The memory read and written; with `everything`, any memory may be."""

    reads: frozenset[Part] = frozenset()
    writes: frozenset[Part] = frozenset()
    everything: bool = False

    def __or__(self, other: Effects) -> Effects:
        return Effects(self.reads | other.reads, self.writes | other.writes, self.everything or other.everything)

    @property
    def none(self) -> bool:
        return not (self.reads or self.writes or self.everything)

    def conflicts(self, other: Effects) -> bool:
        """Whether the order of the two matters: one writes memory that the other reads or writes."""
        if self.everything or other.everything:
            return not (self.none or other.none)
        return _meet(self.writes, other.reads | other.writes) or _meet(self.reads, other.writes)


def _meet(some: frozenset[Part], others: frozenset[Part]) -> bool:
    return any(one.meets(other) for one in some for other in others)


def effects_of(operation: ir.Operation, module: ir.Module) -> Effects:
    """The effects of `operation`, including its regions."""
    name = operation.name
    if name == LAUNCH:
        return _of_launch(operation, module)
    memrefs = [part_of(value) for value in operation.operands if _is_memref(value)]
    found = Effects()
    if name in _NONE or name.startswith(_PURE):
        return found
    if name.startswith("vector."):
        accesses = {"vector.load": (memrefs, []), "vector.store": ([], memrefs)}
        reads, writes = accesses.get(name, (memrefs, memrefs))
        return Effects(frozenset(reads), frozenset(writes))
    if name == "func.call":
        return _of_call(operation, module)
    if name in ("memref.load", "affine.load"):
        return Effects(reads=frozenset(memrefs))
    if name in _WRITTEN_OPERANDS:
        return Effects(writes=frozenset(memrefs))
    if name in ("memref.copy", "gpu.memcpy"):
        target, source = memrefs if name == "gpu.memcpy" else memrefs[::-1]
        return Effects(frozenset({source}), frozenset({target}))
    if name == "gpu.memset":
        return Effects(writes=frozenset(memrefs))
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                found |= effects_of(inner.operation, module)
    if name.startswith(("linalg.", "memref.atomic_rmw")):
        return found | Effects(frozenset(memrefs), frozenset(memrefs))
    if name.startswith(("scf.", "affine.")) or name in ("gpu.launch", "gpu.all_reduce", "gpu.subgroup_reduce"):
        return found | Effects(frozenset(memrefs), frozenset(memrefs))
    return Effects(everything=True)


def _of_launch(launch: ir.Operation, module: ir.Module) -> Effects:
    """The effects of a kernel's body, mapped to the launch's arguments."""
    arguments = segments(launch)[11]
    body = kernel_body(launch, module)
    if body is None:
        return _of_unknown(launch, arguments)
    return _on_arguments(body, arguments, module)


def _of_call(call: ir.Operation, module: ir.Module) -> Effects:
    """The effects of a function of the kernel's module, mapped to the call's arguments."""
    around = call.parent
    while around is not None and around.name not in ("gpu.module", "builtin.module"):
        around = around.parent
    name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
    for entry in [] if around is None else around.operation.regions[0].blocks[0].operations:
        function = entry.operation
        if function.name == "func.func" and symbol_name(function) == name:
            body = list(function.regions[0].blocks)
            if body and not any(op.name == "func.call" for op in within(function)):
                return _on_arguments(body, list(call.operands), module)
    return Effects(everything=True)


def _on_arguments(body: list[ir.Block], arguments: list[ir.Value], module: ir.Module) -> Effects:
    """The effects of `body`, mapped from its block arguments to `arguments`."""
    own = Effects()
    for operation in [entry.operation for block in body for entry in block.operations]:
        own |= effects_of(operation, module)
    if own.everything:
        return own
    here = {inner: part_of(outer) for inner, outer in zip(body[0].arguments, arguments, strict=False)
            if _is_memref(outer)}
    return Effects(
        frozenset(here[part.memory] for part in own.reads if part.memory in here),
        frozenset(here[part.memory] for part in own.writes if part.memory in here),
    )


def kernel_body(launch: ir.Operation, module: ir.Module) -> list[ir.Block] | None:
    """The blocks of the kernel that is launched; None if the file does not define it."""
    symbol = ir.SymbolRefAttr(launch.attributes["kernel"]).value
    for container in (entry.operation for entry in module.body.operations):
        if container.name == "gpu.module" and symbol_name(container) == symbol[0]:
            for inner in (entry.operation for entry in container.regions[0].blocks[0].operations):
                if inner.name == "gpu.func" and symbol_name(inner) == symbol[1]:
                    return list(inner.regions[0].blocks)
    return None


def _of_unknown(launch: ir.Operation, arguments: list[ir.Value]) -> Effects:
    """The effects of a kernel defined elsewhere. It does not write constants, nor arguments of a function that returns
    memory which it allocates: these are its inputs."""
    memrefs = [part_of(value) for value in arguments if _is_memref(value)]
    function = launch.parent
    while function.name != "func.func":
        function = function.parent
    kinds = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results
    gives_memory = any(isinstance(kind, (ir.MemRefType, ir.UnrankedMemRefType)) for kind in kinds)
    written = [
        part for part in memrefs
        if not (isinstance(part.memory.owner, ir.Block) and gives_memory) and not _is_constant(part.memory)
    ]
    symbol = "::@".join(ir.SymbolRefAttr(launch.attributes["kernel"]).value)
    _LOG.warning(
        "%s: kernel @%s is not in this file: taken to read all its arguments, and to write those that are no "
        "constants%s",
        locate(launch.location) or launch.name, symbol, " and no arguments of the function" if gives_memory else "",
    )
    return Effects(frozenset(memrefs), frozenset(written))


def _is_constant(memref: ir.Value) -> bool:
    if isinstance(memref.owner, ir.Block):
        return False
    return memref.owner.operation.name in ("krnl.global", "memref.get_global")


def _is_memref(value: ir.Value) -> bool:
    return isinstance(value.type, (ir.MemRefType, ir.UnrankedMemRefType))


def has_launches(operation: ir.Operation) -> bool:
    """Whether an operation inside `operation` runs on a device."""
    return any(inner.name.startswith("gpu.") for inner in within(operation))
