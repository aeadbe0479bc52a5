"""Lowers a kernel's assertions, in a function of blocks and branches, to an early return and a report to the runtime.

                              cond_br %in, ^on, ^failed
    cf.assert %in, "1"   →    ^failed: call @motet.failed(%status, 1, %i, %n) ; return
                              ^on: …

`%status` is the address of four words, zero before the call: the number of the first check that failed, the index and
the extent that it was compared with (-1 if the check is not such a comparison), and one unused word. Memory that the
task has allocated, for temporaries of unknown size, is not freed after a failure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from motet.compiler.ir._mlir import arith, func, ir
from motet.compiler.ir.attributes import INTEGER_PREDICATES
from motet.compiler.ir.find import find_operations

FAILED = "motet.failed"
_DECLARED = re.compile(rf'^declare [^\n]*"?{re.escape(FAILED)}"?\([^\n]*\n', re.MULTILINE)
DEFINITION = f"""
define internal void @"{FAILED}"(i64 %status, i64 %number, i64 %index, i64 %extent) cold noinline nounwind {{
  %words = inttoptr i64 %status to ptr
  %first = cmpxchg ptr %words, i64 0, i64 %number monotonic monotonic
  %mine = extractvalue {{ i64, i1 }} %first, 1
  br i1 %mine, label %tell, label %out
tell:
  %p_index = getelementptr i64, ptr %words, i64 1
  store i64 %index, ptr %p_index
  %p_extent = getelementptr i64, ptr %words, i64 2
  store i64 %extent, ptr %p_extent
  br label %out
out:
  ret void
}}
"""


def exit_on_failure(module: ir.Module, function: ir.Operation) -> bool:
    """Make `function`, of blocks and branches and without results, return if an assertion fails; returns whether it has
    assertions. If so, the function gets the address of the status as its last argument."""
    assertions = find_operations(function, "cf.assert")
    if not assertions:
        return False
    word = ir.IntegerType.get_signless(64)
    status = function.regions[0].blocks[0].add_argument(word, ir.Location.unknown())
    with ir.InsertionPoint.at_block_begin(module.body):
        func.FuncOp(FAILED, ([word] * 4, []), visibility="private")
    for assertion in assertions:
        _exit(assertion, status)
    return True


def _exit(assertion: ir.Operation, status: ir.Value) -> None:
    block = assertion.block
    operations = [entry.operation for entry in block.operations]
    following = operations[operations.index(assertion) + 1 :]
    on, failed = block.create_after(), block.create_after()
    for operation in following:
        on.append(operation)
    holds = assertion.operands[0]
    with assertion.location:
        with ir.InsertionPoint(block):
            segments = ir.DenseI32ArrayAttr.get([1, 0, 0])
            ir.Operation.create(
                "cf.cond_br", operands=[holds], attributes={"operandSegmentSizes": segments}, successors=[on, failed]
            )
        with ir.InsertionPoint(failed):
            number = int(ir.StringAttr(assertion.attributes["msg"]).value)
            func.CallOp([], FAILED, [status, _word(number), *_compared(holds)])
            ir.Operation.create("func.return")
    assertion.erase()


def _compared(holds: ir.Value) -> Sequence[ir.Value]:
    """The index and the extent that an assertion compares, as i64."""
    owner = holds.owner
    while not isinstance(owner, ir.Block) and owner.name == "arith.ori":  # or-ed with "no iterations"
        owner = owner.operands[1].owner
    if not isinstance(owner, ir.Block) and owner.name == "arith.cmpi" and isinstance(
        owner.operands[0].type, ir.IndexType
    ):
        predicate = INTEGER_PREDICATES[ir.IntegerAttr(owner.attributes["predicate"]).value]
        index, extent = owner.operands
        if predicate == "sle":  # of an end, one past the last index
            index = arith.SubIOp(index, arith.ConstantOp(ir.IndexType.get(), 1)).result
        if predicate in ("ult", "ule", "sle"):
            word = ir.IntegerType.get_signless(64)
            return [arith.IndexCastOp(word, value).result for value in (index, extent)]
    return _word(0), _word(-1)


def _word(number: int) -> ir.Value:
    return arith.ConstantOp(ir.IntegerType.get_signless(64), number).result


def define_exit(text: str) -> str:
    """Replace the declaration of the function that reports failures in the LLVM IR `text` by its definition."""
    return _DECLARED.sub("", text) + DEFINITION
