"""raise-loops: replaces loop nests over memrefs by operations of linalg that compute the same.

    scf.for %i, %j, %k … { C[i, j] += A[i, k] * B[k, j] }    →    linalg.generic (a contraction)

Nests without such a form remain loops.
"""

from __future__ import annotations

import logging
import math

from motet.compiler.frontends.raising.emit import count_terms, emit_statement
from motet.compiler.frontends.raising.nest import LoopNest, Unraisable
from motet.compiler.frontends.raising.order import check_order
from motet.compiler.frontends.raising.read import read_nest
from motet.compiler.frontends.raising.simplify import simplify
from motet.compiler.frontends.raising.sizes import Sizes, check_sizes
from motet.compiler.frontends.raising.unflatten import unflatten
from motet.compiler.ir._mlir import func, ir

_LOG = logging.getLogger("motet")
_WORTHWHILE = 4096  # iterations from which on a nest inside a loop is raised; fewer cost less than a kernel call


def raise_loops(function: func.FuncOp) -> None:
    """Rewrites the nests of `function` in place. Memrefs are assumed not to overlap."""
    for block in function.regions[0].blocks:
        _raise_block(block, 0)


def _raise_block(block: ir.Block, worthwhile: int) -> None:
    for entry in list(block.operations):
        op = entry.operation
        if op.name == "scf.for" and not len(op.results):
            try:
                sizes = Sizes()
                nest = read_nest(op, sizes)
                simplify(nest, sizes)
                check_sizes(nest)
                unflatten(nest, op)
                check_order(nest)
                if _iterations(nest) >= worthwhile:
                    _emit(nest, sizes, op)
                    op.erase()
                    continue
            except Unraisable as reason:
                _LOG.debug("%s: stays a loop: %s", op.location, reason)
        if op.name in ("scf.for", "scf.if", "scf.while"):
            for region in op.regions:
                for inner in region.blocks:
                    _raise_block(inner, _WORTHWHILE)


def _iterations(nest: LoopNest) -> int:
    return math.prod(nest.extents.values())


def _emit(nest: LoopNest, sizes: Sizes, loop: ir.Operation) -> None:
    """Emits all statements of `nest` before `loop`, or none of them."""
    block = loop.block
    before = len(block.operations)
    try:
        terms = count_terms(nest)
        for statement in nest.statements:
            emit_statement(statement, nest.extents, sizes, terms, loop)
    except Unraisable:
        for _ in range(len(block.operations) - before):
            _previous(block, loop).erase()
        raise


def _previous(block: ir.Block, operation: ir.Operation) -> ir.Operation:
    """The operation before `operation` in its block."""
    previous = None
    for entry in block.operations:
        if entry.operation == operation:
            break
        previous = entry.operation
    if previous is None:
        raise Unraisable("nothing stands before the loop")
    return previous
