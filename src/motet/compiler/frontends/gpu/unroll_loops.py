"""Unrolls short loops on the host around launches.

    scf.for %t = 0 to 3 iter_args(%a = %x, %b = %y) {          gpu.launch_func @step … args(%x, %y)
      gpu.launch_func @step … args(%a, %b)                →    gpu.launch_func @step … args(%y, %x)
      scf.yield %b, %a }                                       gpu.launch_func @step … args(%x, %y)

Each launch then becomes a separate kernel call, on any device; equal kernels share their code. Memory that a loop
carries from iteration to iteration is then known in each. Other loops run on the host.
"""

from __future__ import annotations

from motet.compiler.frontends.gpu.checks import LAUNCH
from motet.compiler.frontends.gpu.kernels import within
from motet.compiler.ir._mlir import func, ir, run_pipeline
from motet.compiler.ir.attributes import integer_constant
from motet.compiler.ir.remap import remap

_MOST = 64  # launches that unrolling may create from a loop
_FOR = "scf.for"


def unroll_loops(module: ir.Module) -> None:
    """Rewrites the functions of `module` in place."""
    functions = [entry for entry in module.body.operations if isinstance(entry, func.FuncOp)]
    loops = [op for function in functions for op in within(function.operation) if op.name == "affine.for"]
    if any(_launches(loop) for loop in loops):
        run_pipeline(module, "lower-affine")
    for function in functions:
        for block in function.regions[0].blocks:
            _unroll(block)


def _launches(operation: ir.Operation) -> int:
    return sum(inner.name == LAUNCH for inner in within(operation))


def _unroll(block: ir.Block) -> None:
    """Unrolls the loops of `block`, and then those that were inside them."""
    todo = [entry.operation for entry in block.operations]
    while todo:
        operation = todo.pop()
        if operation.name != _FOR:
            continue
        launches = _launches(operation)
        bounds = [integer_constant(value) for value in list(operation.operands)[:3]]
        if not launches or None in bounds:
            continue
        counters = range(*(bound for bound in bounds if bound is not None))
        if launches * len(counters) <= _MOST:
            todo += _unroll_loop(operation, counters)


def _unroll_loop(loop: ir.Operation, counters: range) -> list[ir.Operation]:
    """Replaces `loop` by its iterations; returns their operations."""
    body = loop.regions[0].blocks[0]
    counter, *carried = body.arguments
    handed = list(loop.operands)[3:]
    *operations, last = [entry.operation for entry in body.operations]
    made: list[ir.Operation] = []
    for current in counters:
        number = ir.Operation.create(
            "arith.constant", results=[counter.type], attributes={"value": ir.IntegerAttr.get(counter.type, current)},
            loc=loop.location, ip=ir.InsertionPoint(loop),
        ).result  # fmt: skip
        values = {counter: number, **dict(zip(carried, handed, strict=True))}
        for operation in operations:
            with ir.InsertionPoint(loop):
                copy = operation.clone()
            remap(copy, values)
            values.update(zip(operation.results, copy.results, strict=True))
            made.append(copy)
        handed = [values.get(value, value) for value in last.operands]
    for result, value in zip(loop.results, handed, strict=True):
        result.replace_all_uses_with(value)
    loop.erase()
    return made
