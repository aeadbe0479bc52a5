"""Verifies invariants of kernels, given as a table of rules.

A rule has a name, a sentence that states the invariant, and a function that finds violations. The rules are checked
after a kernel is read and after every rewrite of it, in tests and if `MOTET_CHECK=1` is set: a defect of a pass is then
an error of that pass, rather than wrong results of a code generator.

Source: the tables of tinygrad's `uop/spec.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.checked import check_wanted
from motet.compiler.kernels.kernel import EXTENT, ITEM_BITS, Access, Kernel, Size, Stage
from motet.compiler.kernels.strides import span_of
from motet.errors import CompileError

_ROLES = {"argument": 0, "constant": 0, "result": 1, "temporary": 2}  # the order of values by role
Finder = Callable[[Kernel], Iterator[str]]


@dataclass(frozen=True)
class Rule:
    """`says` states the invariant; `broken` yields the places that violate it."""

    name: str
    says: str
    broken: Finder


def verify(kernel: Kernel, when: str = "") -> Kernel:
    """`kernel` if it satisfies all rules. Raises CompileError that names the first violated rule and the place; `when`
    tells what produced the kernel."""
    for rule in RULES:
        for place in rule.broken(kernel):
            after = f" after {when}" if when else ""
            raise CompileError(
                f"kernel {kernel.name}{after}: {place}: rule {rule.name}: {rule.says}; this is a defect of the compiler"
            )
    return kernel


def checked(kernel: Kernel, when: str) -> Kernel:
    """`kernel`, verified if checks are enabled."""
    return verify(kernel, when) if check_wanted() else kernel


# -- values ----------------------------------------------------------------------------------------


def _roles(kernel: Kernel) -> Iterator[str]:
    for number, (one, other) in enumerate(zip(kernel.values, kernel.values[1:], strict=False)):
        if _ROLES[one.role] > _ROLES[other.role]:
            yield f"value {number + 1} is a {other.role} and follows a {one.role}"


def _orders(kernel: Kernel) -> Iterator[str]:
    for number, value in enumerate(kernel.values):
        if sorted(value.order) != list(range(value.rank)):
            yield f"value {number} of rank {value.rank} has the order {list(value.order)}"


def _dtypes(kernel: Kernel) -> Iterator[str]:
    for number, value in enumerate(kernel.values):
        if value.dtype not in ITEM_BITS:
            yield f"value {number} has elements of {value.dtype}"
    for where, stage in _stages(kernel):
        for position, scalar in enumerate(stage.body):
            if scalar.dtype not in ITEM_BITS:
                yield f"{where}: operation {position} gives {scalar.dtype}"


def _symbols(kernel: Kernel) -> Iterator[str]:
    if len(set(kernel.symbols)) != len(kernel.symbols):
        yield f"symbols {list(kernel.symbols)}"
    used: list[tuple[str, Sequence[Size]]] = [
        (f"value {number}", value.shape) for number, value in enumerate(kernel.values)
    ]
    for where, stage in _stages(kernel):
        used.append((where, stage.sizes))
        used.append((where, [scalar.predicate for scalar in stage.body if scalar.op == EXTENT]))
    for where, sizes in used:
        for size in sizes:
            if size not in kernel.symbols if isinstance(size, str) else size < 0:
                yield f"{where} has an extent of {size}"


def _arguments(kernel: Kernel) -> Iterator[str]:
    count = sum(value.role in ("argument", "constant") for value in kernel.values)
    if kernel.arguments and (len(kernel.arguments) != count or len(set(kernel.arguments)) != count):
        yield f"{count} arguments and constants are arguments {list(kernel.arguments)} of the function"


# -- stages ----------------------------------------------------------------------------------------


def _stages(kernel: Kernel) -> Iterator[tuple[str, Stage]]:
    return ((f"stage {number}", stage) for number, stage in enumerate(kernel.stages))


def _accesses(stage: Stage) -> Iterator[tuple[str, Access]]:
    yield from ((f"input {k}", access) for k, access in enumerate(stage.inputs))
    yield from ((f"output {k}", access) for k, access in enumerate(stage.outputs))
    yield from ((f"init {k}", init) for k, init in enumerate(stage.inits) if isinstance(init, Access))


def _loops(kernel: Kernel) -> Iterator[str]:
    for where, stage in _stages(kernel):
        if len(stage.sizes) != len(stage.iterators) or not set(stage.iterators) <= {"parallel", "reduction"}:
            yield f"{where} has extents {list(stage.sizes)} and iterators {list(stage.iterators)}"


def _outputs(kernel: Kernel) -> Iterator[str]:
    for where, stage in _stages(kernel):
        if not stage.outputs or not len(stage.outputs) == len(stage.inits) == len(stage.yields):
            counts = len(stage.outputs), len(stage.inits), len(stage.yields)
            yield f"{where} has {counts[0]} outputs, {counts[1]} inits and {counts[2]} yields"


def _maps(kernel: Kernel) -> Iterator[str]:
    for where, stage in _stages(kernel):
        for which, access in _accesses(stage):
            if not 0 <= access.value < len(kernel.values):
                yield f"{where}: {which} is of value {access.value}"
            elif len(access.map) != kernel.values[access.value].rank:
                rank = kernel.values[access.value].rank
                yield f"{where}: {which} has {len(access.map)} positions in value {access.value} of rank {rank}"
            elif any(not 0 <= d < len(stage.sizes) for entry in access.map for d in entry.dims):
                yield f"{where}: {which} is not over the {len(stage.sizes)} dimensions of the stage"
            elif any(entry != Affine.of(dict(entry.terms), entry.constant) for entry in access.map):
                yield f"{where}: {which} has terms that are zero, or not in the order of their dimensions"


def _bounds(kernel: Kernel) -> Iterator[str]:
    for where, stage in _stages(kernel):
        if 0 in stage.sizes:
            continue
        tables = {scalar.operands[0] for scalar in stage.body if scalar.op == "tensor.extract"}
        inside = [(which, access) for which, access in _accesses(stage) if access.padding is None]
        inside = [each for each in inside if each[0] not in {f"input {number}" for number in tables}]
        for which, access in inside:
            for entry, extent in zip(access.map, kernel.values[access.value].shape, strict=True):
                span = span_of(entry, stage.sizes)
                if span is not None and isinstance(extent, int) and not 0 <= span[0] <= span[1] < extent:
                    yield f"{where}: {which} goes from {span[0]} to {span[1]} along an axis of {extent}"


def _writes(kernel: Kernel) -> Iterator[str]:
    for where, stage in _stages(kernel):
        for k, output in enumerate(stage.outputs):
            if output.padding is not None or kernel.values[output.value].role not in ("result", "temporary"):
                yield f"{where}: output {k} writes value {output.value}, padded or from outside"
            if any(entry.coefficient(d) for entry in output.map for d in stage.reductions):
                yield f"{where}: output {k} moves along a reduction"


def _order_of_stages(kernel: Kernel) -> Iterator[str]:
    written = {number for number, value in enumerate(kernel.values) if value.role in ("argument", "constant")}
    for where, stage in _stages(kernel):
        for which, access in _accesses(stage):
            if not which.startswith("output") and access.value not in written:
                yield f"{where}: {which} reads value {access.value}, which no earlier stage writes"
        written |= {output.value for output in stage.outputs}
    for number, value in enumerate(kernel.values):
        if value.role == "result" and number not in written and 0 not in value.shape:
            yield f"no stage writes the result, value {number}"


# -- bodies ----------------------------------------------------------------------------------------


def _operands(kernel: Kernel) -> Iterator[str]:
    for where, stage in _stages(kernel):
        first = len(stage.inputs) + len(stage.outputs)
        for position, scalar in enumerate(stage.body):
            if any(not 0 <= operand < first + position for operand in scalar.operands):
                yield f"{where}: operation {position}, {scalar.op}, has the operands {list(scalar.operands)}"
        if any(not 0 <= number < first + len(stage.body) for number in stage.yields):
            yield f"{where} yields {list(stage.yields)}"


def _attributes(kernel: Kernel) -> Iterator[str]:
    for where, stage in _stages(kernel):
        for position, scalar in enumerate(stage.body):
            missing = (
                (scalar.op == "arith.constant" and scalar.value is None)
                or (scalar.op == "linalg.index" and scalar.value not in range(len(stage.sizes)))
                or (scalar.op in ("arith.cmpf", "arith.cmpi", EXTENT) and not scalar.predicate)
                or not 0 <= scalar.check <= len(kernel.checks)
            )
            if missing:
                yield f"{where}: operation {position}, {scalar.op}"


def _running(kernel: Kernel) -> Iterator[str]:
    for where, stage in _stages(kernel):
        read = {operand for scalar in stage.body for operand in scalar.operands} | set(stage.yields)
        for k, init in enumerate(stage.inits):
            if init is None and len(stage.inputs) + k in read:
                yield f"{where}: output {k}"


def _types(kernel: Kernel) -> Iterator[str]:
    for where, stage in _stages(kernel):
        dtypes = [kernel.values[access.value].dtype for access in (*stage.inputs, *stage.outputs)]
        dtypes += [scalar.dtype for scalar in stage.body]
        for output, number in zip(stage.outputs, stage.yields, strict=True):
            if dtypes[number] != (own := kernel.values[output.value].dtype):
                yield f"{where} yields {dtypes[number]} to value {output.value}, {own}"


# A rule may rely on the rules before it.
RULES = (
    Rule("roles", "arguments and constants stand before results, and those before temporaries", _roles),
    Rule("orders", "a physical order has every dimension once", _orders),
    Rule("dtypes", "element types are those of `ITEM_BITS`", _dtypes),
    Rule("symbols", "extents are numbers from 0 or symbols of the kernel, each named once", _symbols),
    Rule("arguments", "every argument and constant is one argument of the function, if that is known", _arguments),
    Rule("loops", "every extent has an iterator, parallel or reduction", _loops),
    Rule("outputs", "a stage has outputs, and for each an init and a yield", _outputs),
    Rule("maps", "an access has a position for each axis of its value, over the stage's dimensions", _maps),
    Rule("bounds", "what has no padding is accessed inside", _bounds),
    Rule("writes", "stages write results and temporaries, at one place for all points of a reduction", _writes),
    Rule("stages", "what is read was written before, and all results with elements are", _order_of_stages),
    Rule("operands", "operations and yields use what is calculated before", _operands),
    Rule("attributes", "constants have a value, indices a dimension, comparisons a predicate", _attributes),
    Rule("running", "an output whose running value is read has an init", _running),
    Rule("types", "what is yielded has the element type of the output", _types),
)
