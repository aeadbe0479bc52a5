"""contracts: the requirements for launching kernels, from the kernels alone; kernels without code have none.

    @k(%a: tensor<?x8xf32>) -> tensor<?xf32>      →      symbols [s0, s1]  buffers [s0·32, s1·4]  equal [s0, s1]

Schedules are made from the same kernels by other code (`schedule.py`); that both agree is checked when an artifact is
written, and again when it is read (`artifact/agreement.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet.artifact.contracts import KernelContract
from motet.artifact.expressions import apply, product, substitute, symbols_of
from motet.artifact.schema import STATUS_BYTES, Expr
from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.kernel import Size
from motet.compiler.kernels.packing import packed_elements
from motet.compiler.scheduling.schedule import Compiled
from motet.compiler.scheduling.shapes import Shapes
from motet.errors import CompileError


def contracts_of(
    compiled: Mapping[str, Compiled], functions: Mapping[str, ir.Operation]
) -> dict[str, list[KernelContract]]:
    """The contracts of `compiled` kernels by symbol; their `functions` determine which extents are equal."""
    found: dict[str, list[KernelContract]] = {}
    for name, entry in compiled.items():
        if not entry.code.phases:
            continue
        for symbol, contract in _phases(entry, _equalities(entry, functions[name])):
            own = found.setdefault(symbol, [])
            if contract not in own:
                own.append(contract)
    return found


def _phases(entry: Compiled, equal: list[list[Expr]]) -> list[tuple[str, KernelContract]]:
    code, reads = entry.code, len(entry.operands)
    buffers = [*_bytes(entry), *code.workspaces, *([STATUS_BYTES] if code.checks else [])]
    found: list[tuple[str, KernelContract]] = []
    for phase in code.phases:
        taken = list(range(len(buffers)) if phase.buffers is None else phase.buffers)
        place = {number: position for position, number in enumerate(taken)}
        found.append((phase.symbol, KernelContract(
            [symbol for symbol, *_ in entry.extents], [buffers[number] for number in taken],
            sum(number < reads for number in taken), phase.tasks, code.scratch, equal,
            found[-1][0] if found else "", taken if len(code.phases) > 1 else [],
            [(place[a], place[b]) for a, b in code.updates if a in place and b in place],
        )))
    return found


def _bytes(entry: Compiled) -> list[Expr]:
    """The sizes in bytes of operands and results."""
    packings = [*entry.packings, *[None] * (len(entry.shapes) - len(entry.packings))]
    found: list[Expr] = []
    for shape, item, packing in zip(entry.shapes, entry.items, packings, strict=True):
        known = [size for size in shape if isinstance(size, int)]
        if packing is not None and len(known) == len(shape):
            found.append(packed_elements(tuple(known), packing) * item)
        else:
            found.append(apply("*", product(shape), item))
    return found


def _equalities(entry: Compiled, function: ir.Operation) -> list[list[Expr]]:
    """Pairs of a kernel's sizes that must be equal: those of common loops, and its results' extents."""
    if not entry.extents:
        return []  # all are numbers, which MLIR has compared
    shapes = Shapes(function)
    try:
        results = shapes.results_of(function)
    except CompileError:  # extents depend on data, or on operations that only code generators read
        results = []
    outside: dict[tuple[str, int], Sequence[Size]] = {
        ("argument", number): shape for number, shape in zip(entry.operands, entry.shapes, strict=False)
    }
    outside |= {("result", i): shape for i, shape in enumerate(entry.shapes[len(entry.operands) :])}
    own: dict[str, Expr] = {
        symbol.name: outside["argument", symbol.input][symbol.axis]
        for symbol in shapes.symbols
        if symbol.axis < len(outside.get(("argument", symbol.input), ()))
    }
    pairs = [(_over(left, own), _over(right, own)) for left, right in shapes.equalities]
    for number, extents in enumerate(results):
        sizes = outside["result", number]
        if len(extents) == len(sizes):
            pairs += [(_over(extent, own), size) for extent, size in zip(extents, sizes, strict=True)]
    found = [[left, right] for left, right in pairs if left is not None and right is not None and left != right]
    return [pair for number, pair in enumerate(found) if pair not in found[:number]]


def _over(expression: Expr, own: Mapping[str, Expr]) -> Expr | None:
    """An expression over other symbols; None if some are unknown."""
    return substitute(expression, own) if symbols_of(expression) <= own.keys() else None
