"""Reads Shardy's meshes and shardings, as JAX writes them, as Motet's (`ir/shardings.py`).

    "sdy.mesh"() {mesh = #sdy.mesh<["x"=2]>}                       →   module attributes {motet.mesh = "x=2"}
    %x {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}          →   %x {motet.sharding = "[x][]"}
    "sdy.sharding_constraint"(%0) {sharding = …}                   →   "motet.shard"(%0) {motet.sharding = …}
    "sdy.manual_computation"(%a) ({ ^bb0(%x): … sdy.return %y })   →   %x = "motet.to_local"(%a) …
                                                                       "motet.to_global"(%y)

Open dimensions and priorities do not change results and are left out. Reference:
https://github.com/openxla/shardy, docs/sdy_dialect.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.shardings import MESH, SHARD_OP, SHARDING, TO_GLOBAL, TO_LOCAL, parse_mesh
from motet.errors import CompileError

OPERATIONS = frozenset({
    "sdy.mesh", "sdy.sharding_constraint", "sdy.reshard", "sdy.manual_computation", "sdy.return",
})
_SHARDING = "sdy.sharding"
_EMPTY = "empty_mesh"


def read_shardy(module: ir.Module) -> None:
    """Rewrites a module in place. Raises CompileError for what has no counterpart."""
    meshes = _read_meshes(module)
    for op in list(module.body.operations):
        if op.operation.name == "func.func":
            _read_attributes(op.operation, meshes)
    for op in find_operations(module, "sdy.sharding_constraint", "sdy.reshard"):
        if not ir.RankedTensorType(op.results[0].type).rank:  # such as in the bodies of reductions
            _replace(op, [op.operands[0]])
            continue
        sharding = _parse(str(op.attributes["sharding"]), op.location, meshes)
        _replace(op, [_create(SHARD_OP, op.results[0].type, op.operands[0], sharding, op)])
    for op in find_operations(module, "sdy.manual_computation"):
        _inline(op, meshes)


def _read_meshes(module: ir.Module) -> dict[str, str]:
    """The meshes by name, as text; that with most devices becomes the module's."""
    found: dict[str, str] = {}
    for op in list(module.body.operations):
        operation = op.operation
        if operation.name != "sdy.mesh":
            continue
        text = str(operation.attributes["mesh"])
        if "device_ids" in text and (ids := re.search(r"device_ids\s*=\s*\[([^\]]*)\]", text)):
            numbers = [int(number) for number in ids[1].split(",") if number.strip()]
            if numbers != sorted(numbers):
                raise CompileError(f"sdy.mesh: device_ids = [{ids[1]}]: devices in another order are not supported; "
                                   "expected 0, 1, …", locate(operation.location))
        axes = re.findall(r'"([^"]+)"\s*=\s*(\d+)', text)
        found[ir.StringAttr(operation.attributes["sym_name"]).value] = ",".join(f"{a}={n}" for a, n in axes)
        operation.erase()
    known = {text for text in found.values() if text}
    if len(known) > 1:
        raise CompileError(f"sdy.mesh: several meshes, {' and '.join(sorted(known))}; expected one",
                           locate(module.operation.location))
    if known:
        text = known.pop()
        parse_mesh(text)
        module.operation.attributes[MESH] = ir.StringAttr.get(text)
    return found


def _read_attributes(function: ir.Operation, meshes: dict[str, str]) -> None:
    for kind in ("arg_attrs", "res_attrs"):
        if kind not in function.attributes:
            continue
        own: list[ir.Attribute] = []
        for each in ir.ArrayAttr(function.attributes[kind]):
            named = {entry.name: entry.attr for entry in ir.DictAttr(each)}
            if _SHARDING in named:
                sharding = _parse(str(named.pop(_SHARDING)), function.location, meshes)
                named[SHARDING] = ir.StringAttr.get(sharding)
            own.append(ir.DictAttr.get(named))
        function.attributes[kind] = ir.ArrayAttr.get(own)


def _parse(text: str, location: ir.Location, meshes: dict[str, str], only: Sequence[str] | None = None) -> str:
    """A sharding in Motet's spelling; with `only`, of these axes alone."""
    match = re.search(r"<\s*@([\w.\-]+|\"[^\"]+\")\s*,\s*\[(.*?)\]\s*(?:,\s*(.*))?>\s*$", text, re.DOTALL)
    if match is None:
        raise CompileError(f"{text}: expected a sharding of the dimensions of one mesh", locate(location))
    if match[3] and "unreduced" in match[3]:
        raise CompileError(f"{text}: unreduced axes are not supported; expected a reduced tensor", locate(location))
    name = match[1].strip('"')
    if name not in meshes and name != _EMPTY:
        raise CompileError(f"{text}: there is no mesh @{name}; available: {', '.join(meshes) or 'none'}",
                           locate(location))
    dimensions: list[str] = []
    for part in re.findall(r"\{([^}]*)\}", match[2]):
        if re.search(r'"\s*:\s*\(', part):
            raise CompileError(f"{text}: parts of axes are not supported; expected whole ones", locate(location))
        axes = [axis for axis in re.findall(r'"([^"]+)"', part) if only is None or axis in only]
        dimensions.append(f"[{','.join(axes)}]")
    return "".join(dimensions)


def _shardings(text: str, location: ir.Location, meshes: dict[str, str], only: Sequence[str]) -> list[str]:
    """Those of a list `[<@mesh, [{"x"}]>, …]`."""
    return [_parse(part, location, meshes, only) for part in re.findall(r"<@[^<>]*>", text)]


def _inline(op: ir.Operation, meshes: dict[str, str]) -> None:
    """The body of a computation, between operations that take tensors apart and join them."""
    names = ("in_shardings", "out_shardings", "manual_axes")
    texts = {name: ir.StringAttr(op.attributes[name]).value for name in names}
    manual = re.findall(r'"([^"]+)"', texts["manual_axes"])
    block = op.regions[0].blocks[0]
    given = _shardings(texts["in_shardings"], op.location, meshes, manual)
    for argument, operand, sharding in zip(block.arguments, op.operands, given, strict=True):
        argument.replace_all_uses_with(_create(TO_LOCAL, argument.type, operand, sharding, op))
    operations = [entry.operation for entry in block.operations]
    made = _shardings(texts["out_shardings"], op.location, meshes, manual)
    for inner in operations[:-1]:
        inner.move_before(op)
    results = [
        _create(TO_GLOBAL, result.type, value, sharding, op)
        for result, value, sharding in zip(op.results, operations[-1].operands, made, strict=True)
    ]
    _replace(op, results)


def _create(name: str, kind: ir.Type, operand: ir.Value, sharding: str, at: ir.Operation) -> ir.Value:
    return ir.Operation.create(
        name, results=[kind], operands=[operand], attributes={SHARDING: ir.StringAttr.get(sharding)}, loc=at.location,
        ip=ir.InsertionPoint(at),
    ).result


def _replace(op: ir.Operation, values: Sequence[ir.Value]) -> None:
    for result, value in zip(op.results, values, strict=True):
        result.replace_all_uses_with(value)
    op.erase()
