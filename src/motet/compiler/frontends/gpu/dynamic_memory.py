"""Replaces a launch's dynamic shared memory, `gpu.dynamic_shared_memory`, by memory of the types it is viewed as.

    %all = gpu.dynamic_shared_memory : memref<?xi8, …>          %a = memref.alloc() {motet.workgroup} : memref<8xf32, …>
    %a = memref.view %all[%c0][] : … to memref<8xf32, …>    →   %b = memref.alloc() {motet.workgroup} : memref<4xi32, …>
    %b = memref.view %all[%c32][] : … to memref<4xi32, …>
"""

from __future__ import annotations

import math

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import integer_constant
from motet.compiler.ir.find import find_operations
from motet.errors import CompileError

WORKGROUP = "motet.workgroup"


def place_dynamic_memory(holder: ir.Module) -> None:
    """Rewrites the kernel in `holder`. Raises CompileError for views of dynamic offset or size, and for views that
    overlap without being equal."""
    block = holder.body.operations[0].operation.regions[0].blocks[0]
    placed: list[tuple[int, int, ir.Value]] = []
    for memory in find_operations(holder, "gpu.dynamic_shared_memory"):
        for view in [use.owner.operation for use in memory.results[0].uses]:
            begin, end = _range(view)
            there = next((m for b, e, m in placed if b < end and begin < e), None)
            if there is None:
                attributes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0]), WORKGROUP: ir.UnitAttr.get()}
                there = ir.Operation.create(
                    "memref.alloc", results=[view.results[0].type], attributes=attributes, loc=view.location,
                    ip=ir.InsertionPoint.at_block_begin(block),
                ).result
                placed.append((begin, end, there))
            elif (begin, end, there) not in placed or there.type != view.results[0].type:
                raise CompileError(
                    "memref.view: views of a block's memory that overlap are not supported on the host, unless they "
                    "are the same", locate(view.location),
                )
            view.results[0].replace_all_uses_with(there)
            view.erase()
        memory.erase()


def _range(view: ir.Operation) -> tuple[int, int]:
    begin = integer_constant(view.operands[1]) if view.name == "memref.view" and len(view.operands) == 2 else None
    kind = ir.MemRefType(view.results[0].type) if begin is not None else None
    if begin is None or kind is None or not kind.has_static_shape:
        raise CompileError(
            f"{view.name}: a block's dynamic memory can be used by memref.view at a constant place and of a constant "
            "size alone", locate(view.location),
        )
    bits = int("".join(filter(str.isdigit, str(kind.element_type))) or "64")
    return begin, begin + math.prod(kind.shape) * max(8, bits) // 8
