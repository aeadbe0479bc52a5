"""Rewrites loads and stores of globals as SSA values, through branches, loops and calls.

    %r = scf.if %c -> (tensor<4xf32>) {             %r:2 = scf.if %c -> (tensor<4xf32>, tensor<4xf32>) {
      "util.global.store"(%1) {global = @s}     →     scf.yield %0, %1
      scf.yield %0                                  } else {
    } else {                                          scf.yield %x, %s
      scf.yield %x                                  }
    }

A global that a region stores becomes a further result of the region's operation. A global that a region only loads is
used from the enclosing block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, LOAD_OP, STORE_OP, TO, TRANSFER_OP
from motet.compiler.ir.find import all_operations
from motet.compiler.placement.inline_calls import CALL
from motet.compiler.placement.resolve_globals import global_of
from motet.errors import CompileError

Values = dict[str, ir.Value]
_BRANCHES = ("scf.if", "scf.index_switch", "scf.execute_region")


@dataclass(frozen=True)
class Uses:
    """The globals that a function reads or writes, and those that it writes, including its calls."""

    touched: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


@dataclass(frozen=True)
class StateThreads:
    """`names` are the globals to rewrite; `uses` gives, for each function, which of them are trailing arguments and
    results; `first` creates, before an operation, the value of a global that has none yet.

    Raises CompileError for a store in an operation whose regions run in no defined order.
    """

    names: frozenset[str]
    uses: Mapping[str, Uses]
    first: Callable[[str, ir.Operation], ir.Value]

    def block(self, block: ir.Block, values: Values) -> None:
        """Rewrites a block. `values` maps globals to their values before the block, and is updated to those after."""
        for operation in [entry.operation for entry in block.operations]:
            if operation.name == LOAD_OP and (name := global_of(operation)) in self.names:
                operation.results[0].replace_all_uses_with(_moved(self._value(name, values, operation), operation))
                operation.erase()
            elif operation.name == STORE_OP and (name := global_of(operation)) in self.names:
                values[name] = _moved(operation.operands[0], operation)
                operation.erase()
            elif operation.name == CALL:
                self._call(operation, values)
            elif len(operation.regions):
                self._regions(operation, values)

    def append(self, terminator: ir.Operation, names: Iterable[str], values: Values) -> None:
        """Appends the values of `names` to the operands of a block's terminator."""
        more = [as_argument(self._value(name, values, terminator), terminator) if terminator.name == "func.return"
                else self._value(name, values, terminator) for name in names]
        attributes = {name: terminator.attributes[name] for name in terminator.attributes}
        ir.Operation.create(
            terminator.name, operands=[*terminator.operands, *more], attributes=attributes, loc=terminator.location,
            ip=ir.InsertionPoint(terminator),
        )
        terminator.erase()

    def _value(self, name: str, values: Values, before: ir.Operation) -> ir.Value:
        if name not in values:
            values[name] = self.first(name, before)
        return values[name]

    def _call(self, call: ir.Operation, values: Values) -> None:
        uses = self.uses.get(ir.FlatSymbolRefAttr(call.attributes["callee"]).value, Uses())
        if not uses.touched:
            return
        more = [as_argument(self._value(name, values, call), call) for name in uses.touched]
        kinds = [argument_type(self._value(name, values, call).type) for name in uses.written]
        wanted = [self._value(name, values, call).type for name in uses.written]
        made = _remade(call, [*call.operands, *more], kinds)
        for name, result, kind in zip(uses.written, _added(made, kinds), wanted, strict=True):
            values[name] = from_argument(result, kind, call)
        _replace(call, made)

    # -- operations with regions

    def _regions(self, operation: ir.Operation, values: Values) -> None:
        written = self._written_in(operation)
        if not written:
            for region in operation.regions:
                for block in region.blocks:
                    self.block(block, dict(values))
            return
        for name in written:
            self._value(name, values, operation)
        if operation.name in _BRANCHES and all(len(list(region.blocks)) < 2 for region in operation.regions):
            self._branches(operation, written, values)
        elif operation.name in ("scf.for", "scf.while"):
            self._loop(operation, written, values)
        else:
            raise CompileError(
                f"{STORE_OP} @{written[0]}: inside of {operation.name}, whose regions run in no defined order; "
                f"expected it in {', '.join((*_BRANCHES, 'scf.for'))} or scf.while", locate(operation.location),
            )

    def _written_in(self, operation: ir.Operation) -> list[str]:
        found: dict[str, None] = {}
        for each in all_operations(operation):
            if each.name == STORE_OP and (name := global_of(each)) in self.names:
                found[name] = None
            elif each.name == CALL:
                callee = ir.FlatSymbolRefAttr(each.attributes["callee"]).value
                found.update(dict.fromkeys(self.uses.get(callee, Uses()).written))
        return list(found)

    def _branches(self, operation: ir.Operation, written: Sequence[str], values: Values) -> None:
        kinds = [values[name].type for name in written]
        made = _remade(operation, list(operation.operands), kinds)
        for old, new in zip(operation.regions, made.regions, strict=True):
            blocks = list(old.blocks)
            for block in blocks:
                block.append_to(new)
            if not blocks:  # an scf.if without an else
                block = new.blocks.append()
                ir.Operation.create("scf.yield", loc=operation.location, ip=ir.InsertionPoint(block))
            self._end(new.blocks[0], written, dict(values))
        values.update(zip(written, _added(made, kinds), strict=True))
        _replace(operation, made)

    def _loop(self, operation: ir.Operation, written: Sequence[str], values: Values) -> None:
        """Adds the values to the arguments and to the terminator's operands of each block of a loop."""
        kinds = [values[name].type for name in written]
        made = _remade(operation, [*operation.operands, *(values[name] for name in written)], kinds)
        for old, new in zip(operation.regions, made.regions, strict=True):
            block = old.blocks[0]
            block.append_to(new)
            inside = dict(values)
            for name, kind in zip(written, kinds, strict=True):
                inside[name] = block.add_argument(kind, operation.location)
            self._end(block, written, inside)
        values.update(zip(written, _added(made, kinds), strict=True))
        _replace(operation, made)

    def _end(self, block: ir.Block, written: Sequence[str], inside: Values) -> None:
        self.block(block, inside)
        self.append(block.operations[len(block.operations) - 1].operation, written, inside)


def _remade(operation: ir.Operation, operands: Sequence[ir.Value], more: Sequence[ir.Type]) -> ir.Operation:
    """A copy of `operation`, before it, with `operands`, additional results of types `more`, and empty regions."""
    return ir.Operation.create(
        operation.name, results=[*(result.type for result in operation.results), *more], operands=list(operands),
        attributes={name: operation.attributes[name] for name in operation.attributes}, regions=len(operation.regions),
        loc=operation.location, ip=ir.InsertionPoint(operation),
    )


def _added(made: ir.Operation, kinds: Sequence[ir.Type]) -> list[ir.Value]:
    results = list(made.results)
    return results[len(results) - len(kinds):]


def _replace(old: ir.Operation, new: ir.Operation) -> None:
    for before, after in zip(old.results, list(new.results)[: len(old.results)], strict=True):
        before.replace_all_uses_with(after)
    old.erase()


def _moved(value: ir.Value, access: ir.Operation) -> ir.Value:
    """`value`, transferred to the device of the load or store if that has an affinity."""
    if AFFINITY not in access.attributes or not isinstance(value.type, ir.RankedTensorType):
        return value
    return ir.Operation.create(
        TRANSFER_OP, results=[value.type], operands=[value], attributes={TO: access.attributes[AFFINITY]},
        loc=access.location, ip=ir.InsertionPoint(access),
    ).results[0]


# -- arguments and results of functions: an index is passed as i64


def argument_type(kind: ir.Type) -> ir.Type:
    return ir.IntegerType.get_signless(64, kind.context) if isinstance(kind, ir.IndexType) else kind


def as_argument(value: ir.Value, before: ir.Operation) -> ir.Value:
    return _cast(value, argument_type(value.type), before)


def from_argument(value: ir.Value, kind: ir.Type, before: ir.Operation) -> ir.Value:
    return _cast(value, kind, before)


def _cast(value: ir.Value, kind: ir.Type, before: ir.Operation) -> ir.Value:
    if value.type == kind:
        return value
    return ir.Operation.create(
        "arith.index_cast", results=[kind], operands=[value], loc=before.location, ip=ir.InsertionPoint(before)
    ).results[0]
