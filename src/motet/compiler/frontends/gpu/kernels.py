"""Converts kernels to functions of one block, with the thread and block ids at the top.

    gpu.func @k(%x: memref<…>) kernel {              func.func @k(%x: memref<…>, <workgroup and private memory>) {
      cf.cond_br %c, ^a, ^b                    →       %i = gpu.thread_id x
      …                                                scf.if %c { … }
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from motet.compiler.frontends.gpu.checks import AXES, axis_of
from motet.compiler.frontends.gpu.dynamic_memory import place_dynamic_memory
from motet.compiler.frontends.gpu.vectors import make_scalar
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.errors import CompileError

_LOG = logging.getLogger("motet")
IDS = ("gpu.thread_id", "gpu.block_id", "gpu.block_dim", "gpu.grid_dim")
DERIVED = ("gpu.global_id", "gpu.lane_id", "gpu.subgroup_id", "gpu.num_subgroups", "gpu.subgroup_size")
_KNOWN = (
    *IDS, *DERIVED, "gpu.barrier", "gpu.all_reduce", "gpu.subgroup_reduce", "gpu.shuffle", "gpu.yield", "gpu.return",
    "gpu.printf", "gpu.dynamic_shared_memory",
)  # fmt: skip
SUBGROUP = 32  # threads of a subgroup
_STRUCTURED = "lower-affine,func.func(scf-forall-to-for),scf-parallel-for-to-nested-fors,lift-cf-to-scf"


@dataclass(frozen=True)
class KernelBody:
    """`block`, in `module`, ends in a return. Its arguments are the kernel's, then workgroup memory, then private
    memory. Other memory of a block is allocated at its top, marked `motet.workgroup`."""

    module: ir.Module
    block: ir.Block
    arguments: int
    workgroup: int


def read_kernel(kernel: ir.Operation) -> KernelBody:
    """A copy of `kernel`, a `gpu.func`. Raises CompileError for what the host cannot run."""
    _check(kernel)
    copy = kernel.clone()
    first = copy.regions[0].blocks[0]
    arguments = len(ir.FunctionType(ir.TypeAttr(copy.attributes["function_type"]).value).inputs)
    workgroup = (
        ir.IntegerAttr(copy.attributes["workgroup_attributions"]).value
        if "workgroup_attributions" in copy.attributes else 0
    )
    kinds = [argument.type for argument in first.arguments]
    holder = ir.Module.create(loc=kernel.location)
    function = ir.Operation.create(
        "func.func", regions=1, loc=kernel.location, ip=ir.InsertionPoint(holder.body),
        attributes={
            "sym_name": copy.attributes["sym_name"],
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(kinds, [])),
        },
    )  # fmt: skip
    for block in list(copy.regions[0].blocks):
        block.append_to(function.regions[0])
    copy.erase()
    for block in function.regions[0].blocks:
        last = block.operations[len(block.operations) - 1].operation
        if last.name == "gpu.return":
            ir.Operation.create("func.return", loc=last.location, ip=ir.InsertionPoint(last))
            last.erase()
    run_pipeline(holder, _STRUCTURED)
    _drop_prints(holder)
    make_scalar(holder)
    place_dynamic_memory(holder)
    body = holder.body.operations[0].operation.regions[0].blocks[0]
    _HoistedIds(body).run()
    return KernelBody(holder, body, arguments, workgroup)


def _drop_prints(holder: ir.Module) -> None:
    for operation in within(holder.operation):
        if operation.name == "gpu.printf":
            _LOG.warning(
                "%s: gpu.printf: nothing is printed on the host; on a GPU it is",
                locate(operation.location) or "a kernel",
            )
            operation.erase()


def within(operation: ir.Operation) -> list[ir.Operation]:
    """All operations in the regions of `operation`, inner ones first."""
    found: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        found.append(inner.operation)
        return ir.WalkResult.ADVANCE

    operation.walk(visit)
    return found[:-1]  # the last one is `operation`


def _check(kernel: ir.Operation) -> None:
    for operation in within(kernel):
        if operation.name.startswith("gpu.") and operation.name not in _KNOWN:
            raise CompileError(
                f"{operation.name}: this operation in a kernel is not supported on the host; expected loads, stores, "
                "barriers, shuffles, reductions, and the ids and sizes of threads and blocks",
                locate(operation.location),
            )
        if operation.name == "func.call":
            raise CompileError(
                "func.call: in kernels calls of functions of their own gpu.module alone are supported",
                locate(operation.location),
            )


class _HoistedIds:
    """Moves ids and sizes to the top of a kernel, each once, and computes derived ones (lanes, subgroups) from them."""

    def __init__(self, block: ir.Block) -> None:
        self.block = block
        self.first = block.operations[0].operation
        self.top = ir.Operation.create(
            "arith.constant", results=[ir.IndexType.get()],
            attributes={"value": ir.IntegerAttr.get(ir.IndexType.get(), SUBGROUP)},
            loc=ir.Location.unknown(), ip=ir.InsertionPoint.at_block_begin(block),
        )  # fmt: skip
        self.made: dict[tuple[str, int], ir.Value] = {}

    def run(self) -> None:
        function = self.block.owner
        found = [op for op in within(function.operation) if op.name in (*IDS, *DERIVED)]
        for operation in found:
            operation.results[0].replace_all_uses_with(self._value(operation))
        for operation in found:
            operation.erase()

    def _value(self, operation: ir.Operation) -> ir.Value:
        name = operation.name
        if "dimension" in operation.attributes:
            axis = axis_of(operation)
            if name == "gpu.global_id":
                first = self._binary("arith.muli", self._id("gpu.block_id", axis), self._id("gpu.block_dim", axis))
                return self._binary("arith.addi", first, self._id("gpu.thread_id", axis))
            return self._id(name, axis)
        size = self.top.results[0]
        if name == "gpu.subgroup_size":
            return self._binary("arith.maxui", size, size)
        if name == "gpu.num_subgroups":
            threads = self._id("gpu.block_dim", 0)
            for axis in (1, 2):
                threads = self._binary("arith.muli", threads, self._id("gpu.block_dim", axis))
            return self._binary("arith.ceildivui", threads, size)
        return self._binary("arith.remui" if name == "gpu.lane_id" else "arith.divui", self._linear(), size)

    def _linear(self) -> ir.Value:
        """The linear index of the thread in its block, x fastest."""
        number = self._id("gpu.thread_id", 2)
        for axis in (1, 0):
            above = self._binary("arith.muli", number, self._id("gpu.block_dim", axis))
            number = self._binary("arith.addi", above, self._id("gpu.thread_id", axis))
        return number

    def _id(self, name: str, axis: int) -> ir.Value:
        if (name, axis) not in self.made:
            dimension = ir.Attribute.parse(f"#gpu<dim {AXES[axis]}>")
            self.made[name, axis] = ir.Operation.create(
                name, results=[ir.IndexType.get()], attributes={"dimension": dimension},
                loc=self.top.location, ip=ir.InsertionPoint.at_block_begin(self.block),
            ).result  # fmt: skip
        return self.made[name, axis]

    def _binary(self, name: str, left: ir.Value, right: ir.Value) -> ir.Value:
        """A binary operation after all ids, and before their uses."""
        operation = ir.Operation.create(
            name, results=[ir.IndexType.get()], operands=[left, right], loc=self.top.location,
            ip=ir.InsertionPoint(self.first),
        )
        return operation.result
