"""Converts a parallel loop to a launch of full blocks: each thread runs one iteration, the last dimension fastest."""

from __future__ import annotations

import math

from motet.compiler.frontends.gpu.kernels import within
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.create import binary, index_constant
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.remap import remap

PARALLELISE = "func.func(affine-parallelize),lower-affine,canonicalize"  # converts loops to `scf.parallel` if possible
_THREADS = 256
_STACK_BYTES = 1024  # the memory that an iteration may allocate in a thread


def fits_threads(loop: ir.Operation) -> bool:
    """Whether a thread can hold the memory that an iteration of `loop` allocates."""
    return all(_is_small(op) for op in within(loop) if op.name in ("memref.alloc", "memref.alloca"))


def _is_small(allocation: ir.Operation) -> bool:
    kind = ir.MemRefType(allocation.results[0].type)
    return kind.has_static_shape and math.prod(kind.shape) * 8 <= _STACK_BYTES


class ParallelLaunch:
    """Replaces a `scf.parallel` by a launch of the kernel `name`, in a module inside `holder`."""

    def __init__(self, holder: ir.Module, loop: ir.Operation, name: str) -> None:
        self.holder, self.loop, self.name = holder, loop, name
        self.index = ir.IndexType.get()
        count = len(loop.regions[0].blocks[0].arguments)
        operands = list(loop.operands)
        self.lower, self.upper, self.steps = (operands[i * count : (i + 1) * count] for i in range(3))

    def make(self) -> None:
        captured = list(dict.fromkeys(captured_values(self.loop)))
        self._kernel(captured)
        total = self._product(self._extents(self.loop, {}), self.loop)
        blocks = binary("arith.ceildivui", total, index_constant(_THREADS, self.loop), self.loop)
        one, threads = index_constant(1, self.loop), index_constant(_THREADS, self.loop)
        operands = [blocks, one, one, threads, one, one, *captured]
        sizes = [0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, len(captured), 0]
        ir.Operation.create(
            "gpu.launch_func", operands=operands, attributes={
                "kernel": ir.SymbolRefAttr.get([f"{self.name}s", self.name]),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get(sizes),
            }, loc=self.loop.location, ip=ir.InsertionPoint(self.loop),
        )  # fmt: skip
        self.loop.erase()

    def _kernel(self, captured: list[ir.Value]) -> None:
        location = self.loop.location
        container = ir.Operation.create(
            "gpu.module", attributes={"sym_name": ir.StringAttr.get(f"{self.name}s")}, regions=1, loc=location,
            ip=ir.InsertionPoint(self.holder.body),
        )  # fmt: skip
        kinds = [value.type for value in captured]
        kernel = ir.Operation.create(
            "gpu.func", regions=1, loc=location,
            ip=ir.InsertionPoint(container.regions[0].blocks.append()), attributes={
                "sym_name": ir.StringAttr.get(self.name), "gpu.kernel": ir.UnitAttr.get(),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(kinds, [])),
                "workgroup_attributions": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0),
            },
        )  # fmt: skip
        block = kernel.regions[0].blocks.append(*kinds, arg_locs=[location] * len(kinds))
        last = ir.Operation.create("gpu.return", loc=location, ip=ir.InsertionPoint(block))
        values = dict(zip(captured, block.arguments, strict=True))
        dimension = ir.Attribute.parse("#gpu<dim x>")
        number = ir.Operation.create(
            "gpu.global_id", results=[self.index], attributes={"dimension": dimension}, loc=location,
            ip=ir.InsertionPoint(last),
        ).result  # fmt: skip
        extents = self._extents(last, values)
        inside = ir.Operation.create(
            "arith.cmpi", results=[ir.IntegerType.get_signless(1)], operands=[number, self._product(extents, last)],
            attributes={"predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 6)}, loc=location,
            ip=ir.InsertionPoint(last),
        ).result  # fmt: skip
        branch = ir.Operation.create(
            "scf.if", operands=[inside], regions=2, loc=location, ip=ir.InsertionPoint(last)
        )
        end = ir.Operation.create(
            "scf.yield", loc=location, ip=ir.InsertionPoint(branch.regions[0].blocks.append())
        )
        self._iteration(number, extents, values, end)

    def _iteration(
        self, number: ir.Value, extents: list[ir.Value], values: dict[ir.Value, ir.Value], end: ir.Operation
    ) -> None:
        """Inserts the body of the loop for iteration `number` before `end`."""
        body = self.loop.regions[0].blocks[0]
        for axis in reversed(range(len(extents))):
            place = number
            if axis:
                place = binary("arith.remui", number, extents[axis], end)
                number = binary("arith.divui", number, extents[axis], end)
            scaled = binary("arith.muli", place, values[self.steps[axis]], end)
            values[body.arguments[axis]] = binary("arith.addi", scaled, values[self.lower[axis]], end)
        for operation in [entry.operation for entry in body.operations][:-1]:
            with ir.InsertionPoint(end):
                copy = operation.clone()
            remap(copy, values)
            values.update(zip(operation.results, copy.results, strict=True))
        for operation in within(end.parent.operation):
            if operation.name == "memref.alloc":
                local = ir.Operation.create(
                    "memref.alloca", results=[operation.results[0].type], loc=operation.location,
                    attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])},
                    ip=ir.InsertionPoint(operation),
                )  # fmt: skip
                operation.results[0].replace_all_uses_with(local.results[0])
        for operation in within(end.parent.operation):
            if operation.name in ("memref.dealloc", "memref.alloc"):
                operation.erase()

    def _extents(self, at: ir.Operation, values: dict[ir.Value, ir.Value]) -> list[ir.Value]:
        """The number of iterations of each dimension, computed before `at`; `values` maps captured values."""
        found: list[ir.Value] = []
        zero = index_constant(0, at)
        for lower, upper, step in zip(self.lower, self.upper, self.steps, strict=True):
            lower, upper, step = (values.get(value, value) for value in (lower, upper, step))
            whole = binary("arith.subi", upper, lower, at)
            iterations = binary("arith.ceildivsi", whole, step, at)
            found.append(binary("arith.maxsi", iterations, zero, at))
        return found

    def _product(self, factors: list[ir.Value], at: ir.Operation) -> ir.Value:
        total = factors[0]
        for factor in factors[1:]:
            total = binary("arith.muli", total, factor, at)
        return total
