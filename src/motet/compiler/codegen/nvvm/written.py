"""Reads back a launch that is kept as written (`ir/launches.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.launches import LAUNCH, LAUNCH_OPERANDS, LAUNCH_RESULTS

# The groups of a launch's operands, in the order of `operandSegmentSizes`.
_GRID, _BLOCK, _CLUSTER, _SHARED, _ARGUMENTS = 1, 4, 7, 10, 11


@dataclass(frozen=True)
class Written:
    """`host` is the function around the launch, `kernel` the `gpu.func`, both in `module`. `operands` and `results` map
    the arguments and results of the compiled kernel to `host`'s arguments."""

    module: ir.Module
    host: ir.Operation
    launch: ir.Operation
    kernel: ir.Operation
    operands: tuple[int, ...]
    results: tuple[int, ...]

    @property
    def grid(self) -> list[ir.Value]:
        return self._sizes(_GRID)

    @property
    def block(self) -> list[ir.Value]:
        return self._sizes(_BLOCK)

    @property
    def cluster(self) -> list[ir.Value]:
        return [value for group in range(_CLUSTER, _CLUSTER + 3) for value in self._group(group)]

    @property
    def shared(self) -> ir.Value | None:
        """The bytes of dynamic memory that the launch gives to a block."""
        return next(iter(self._group(_SHARED)), None)

    @property
    def arguments(self) -> list[ir.Value]:
        return self._group(_ARGUMENTS)

    def _sizes(self, first: int) -> list[ir.Value]:
        return [self._group(group)[0] for group in range(first, first + 3)]

    def _group(self, number: int) -> list[ir.Value]:
        sizes = [0, *ir.DenseI32ArrayAttr(self.launch.attributes["operandSegmentSizes"])]
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        begin, end = list(pairwise(ends))[number]
        return list(self.launch.operands)[begin:end]


def read_written(function: ir.Operation) -> Written:
    """The launch that the kernel `function` stands for."""
    module = ir.Module.parse(ir.StringAttr(function.attributes[LAUNCH]).value, context=function.context)
    host, container = [entry.operation for entry in module.body.operations][:2]
    launch = next(e.operation for e in host.regions[0].blocks[0].operations if e.operation.name == "gpu.launch_func")
    kernel = next(
        e.operation for e in container.regions[0].blocks[0].operations if e.operation.name == "gpu.func"
    )
    return Written(
        module, host, launch, kernel, tuple(ir.DenseI64ArrayAttr(function.attributes[LAUNCH_OPERANDS])),
        tuple(ir.DenseI64ArrayAttr(function.attributes[LAUNCH_RESULTS])),
    )


def constant(value: ir.Value) -> int | None:
    """The number of an integer value if it is a constant, or a cast of one."""
    if isinstance(value.owner, ir.Block):
        return None
    owner = value.owner.operation
    if owner.name in ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui"):
        return constant(owner.operands[0])
    if owner.name != "arith.constant":
        return None
    attribute = owner.attributes["value"]
    return attribute.value if isinstance(attribute, ir.IntegerAttr) else None
