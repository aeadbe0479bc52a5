"""The name of an operation in the source: the operator that it was lowered from, by name or location.

A frontend that lowers an operator to several operations writes the operator into their locations, which lowerings pass
on: `loc(fused<"Concat">["concat_3"])`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from motet.compiler.ir._mlir import ir

NAMES = "motet.names"  # attribute of a kernel's call: the names in the source of what it computes
JOINED = " + "
_MOST = 64  # names kept of one kernel
# Operations that compute nothing: their names are not those of a kernel's work.
_NOT_WORK = frozenset({
    "arith.constant", "func.call", "func.return", "linalg.fill", "linalg.index", "linalg.yield", "scf.yield",
    "tensor.cast", "tensor.dim", "tensor.empty", "tensor.yield",
})


def keep_operators(module: ir.Module, dialects: tuple[str, ...]) -> None:
    """Writes the names of operations of `dialects`, such as `stablehlo.`, into their locations."""

    def visit(op: ir.Operation) -> ir.WalkResult:
        operation = op.operation
        if operation.name.startswith(dialects):
            _keep_operator(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def _keep_operator(operation: ir.Operation) -> None:
    name = operation.name
    if name == "torch.operator":  # an ONNX operator, whose name is an attribute
        name = ir.StringAttr(operation.attributes["name"]).value.removeprefix("onnx.")
    location, context = operation.location, operation.context
    name = ir.StringAttr.get(name.removeprefix("torch."), context)
    operation.location = ir.Location.fused([location], name, context)


def names_of(location: ir.Location) -> Iterator[str]:
    """The names in a location, the outermost first."""
    location = ir.Location.from_attr(location.attr, location.context)  # as its subclass
    if isinstance(location, ir.NameLoc):
        yield location.name_str
        yield from names_of(location.child_loc)
    elif isinstance(location, ir.CallSiteLoc):
        yield from names_of(location.callee)
    elif isinstance(location, ir.FusedLoc):
        for part in location.locations:
            yield from names_of(part)


def computed_names(operations: Sequence[ir.Operation]) -> str:
    """What `operations` compute, by the names in the source, each once, in order: `conv2 + bn2 + relu`.

    Fusion gives an operation one location, but those inside it keep theirs, so that all are read. Operations without a
    name have their place and operator, `model.mlir:12:8: linalg.matmul`. Returns "" if the source says neither.
    """
    names = list_computed(operations)
    left = len(names) - _MOST
    return JOINED.join([*names[:_MOST], f"{left} more"] if left > 0 else names)


def list_computed(operations: Sequence[ir.Operation]) -> list[str]:
    """The names that `computed_names` joins."""
    found: dict[str, None] = {}
    for operation in operations:
        inner = _inner(operation)
        own = [operation] if operation.name not in _NOT_WORK else []
        for each in [*inner, *own]:
            found.update(dict.fromkeys(_own_names(each.location)))
    if not found:
        work = [each for each in operations if each.name not in _NOT_WORK] or list(operations)
        found.update(dict.fromkeys(name for each in work if (name := _placed(each))))
    return [*found]


def has_work(operation: ir.Operation) -> bool:
    """Whether an operation computes something, so that a kernel is named after it."""
    return operation.name not in _NOT_WORK


def names_of_call(call: ir.Operation) -> str:
    """The names that `computed_names` gave what a kernel's call computes; "" if there are none."""
    return ir.StringAttr(call.attributes[NAMES]).value if NAMES in call.attributes else ""


def _inner(operation: ir.Operation) -> list[ir.Operation]:
    """The operations in the regions of `operation` that compute."""
    found: list[ir.Operation] = []
    for region in operation.regions:
        for block in region.blocks:
            for entry in block.operations:
                inner = entry.operation
                found += _inner(inner)
                if inner.name not in _NOT_WORK:
                    found.append(inner)
    return found


def _own_names(location: ir.Location) -> Iterator[str]:
    """The outermost name in each part of a location, without those that a frontend made for checks."""
    location = ir.Location.from_attr(location.attr, location.context)  # as its subclass
    if isinstance(location, ir.NameLoc):
        if location.name_str and "/require " not in location.name_str:
            yield location.name_str
    elif isinstance(location, ir.CallSiteLoc):
        yield from _own_names(location.callee)
    elif isinstance(location, ir.FusedLoc):
        for part in location.locations:
            yield from _own_names(part)


def _placed(operation: ir.Operation) -> str:
    """The place and the operator of an operation without a name."""
    operator, _, place = _read(operation.location)
    if not operator and not place:
        inner = next((each for each in _inner(operation) if any(_read(each.location))), None)
        return "" if inner is None else _placed(inner)
    operator = operator or operation.name
    return f"{place}: {operator}" if place else operator


def source_name(operation: ir.Operation) -> str:
    """`Concat "concat_3"`, `model.py:12:8: aten.cat` or, for an operation of the source itself,
    `model.mlir:12:8: linalg.matmul`."""
    operator, name, place = _read(operation.location)
    operator = operator or operation.name
    if name and not place:
        return f'{operator} "{name}"'
    return f"{place}: {operator}" if place else operator


def _read(location: ir.Location) -> tuple[str, str, str]:
    """The operator, the name and the place in a file that a location has; empty if absent."""
    location = ir.Location.from_attr(location.attr, location.context)  # as its subclass
    if isinstance(location, ir.FileLineColLoc):
        return "", "", f"{location.filename}:{location.start_line}:{location.start_col}"
    if isinstance(location, ir.NameLoc):
        operator, _, place = _read(location.child_loc)
        return operator, location.name_str, place
    if isinstance(location, ir.CallSiteLoc):
        return _read(location.callee)
    if isinstance(location, ir.FusedLoc):
        parts = [_read(part) for part in location.locations]
        operator = _text(location.metadata)
        first = next((part for part in parts if any(part)), ("", "", ""))
        return operator or first[0], first[1], first[2]
    return "", "", ""


def _text(attribute: ir.Attribute | None) -> str:
    """The value of a string attribute; "" for other attributes."""
    try:
        return "" if attribute is None else ir.StringAttr(attribute).value
    except ValueError:
        return ""
