"""The name of an operation in the source: the operator that it was lowered from, by name or location.

A frontend that lowers an operator to several operations writes the operator into their locations, which lowerings pass
on: `loc(fused<"Concat">["concat_3"])`.
"""

from __future__ import annotations

from collections.abc import Iterator

from motet.compiler.ir._mlir import ir


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


def source_name(operation: ir.Operation) -> str:
    """`Concat "concat_3"`, `model.py:12:8: aten.cat` or, for an operation of the source itself,
    `model.mlir:12:8: linalg.matmul`."""
    operator, name, place = _read(operation.location)
    operator = operator or operation.name
    if name:
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
