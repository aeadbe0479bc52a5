"""affinity-analysis: the device of every operation and value of a function, as far as the program determines it.

    %1 = "motet.transfer"(%0) {to = "gpu"}
    %2 = arith.addf %1, %1                     →  %2 runs on gpu, because its operands are there

An operation runs where its own affinity says, or that of the nearest enclosing operation or function; else where its
tensor operands are; else, if none of them is on a device (constants, and values computed from them), where its results
are used. With operands on several devices it runs on the device of the tensor that it writes into, also if that was
filled before, else on the default device, as do operations that nothing places. Of an affinity with several devices,
the one with most operands is chosen. Values that branches and loops pass on are followed to a fixed point: a value that
comes from several devices is on each of them.

Source of the rules: IREE's affinity analysis, compiler/src/iree/compiler/Dialect/Stream/Analysis/Affinity.cpp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import (
    AFFINITY,
    HOMES,
    LOOP_OP,
    TO,
    TRANSFER_OP,
    WANTED,
    Affinity,
    join_and,
    join_or,
    parse_affinity,
)
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.functions import symbol_name
from motet.compiler.ir.program import DESTINATION, parameters_of
from motet.compiler.scheduling.carried import written_into as original_tensor
from motet.errors import CompileError

MOST_ROUNDS = 128
CONTROL = ("scf.if", "scf.for", "scf.while", "scf.execute_region", "scf.index_switch")
TERMINATORS = ("scf.yield", "scf.condition", "func.return")
REPLICABLE = ("arith.constant", "complex.constant", "tensor.empty", "tensor.splat", "linalg.fill")


@dataclass
class AffinityNode:
    """An operation outside the bodies of kernels: its explicit affinity (its own, or that of an enclosing operation),
    and the computed one."""

    operation: ir.Operation
    explicit: Affinity | None
    own: bool = False
    affinity: Affinity | None = None
    inner: list[AffinityNode] = field(default_factory=list["AffinityNode"])  # of control flow: its contents


class AffinityAnalysis:
    """The affinities of one function; `default` is a single device, for operations that nothing places."""

    def __init__(self, function: ir.Operation, default: Affinity) -> None:
        self.function = function
        self.default = default
        self.values: dict[ir.Value, Affinity] = {}
        self._by_result: dict[ir.Value, AffinityNode] = {}
        self.nodes: list[AffinityNode] = []  # in program order, including the contents of control flow
        self.block = function.regions[0].blocks[0]
        self.result_pins = pins(function, "res_attrs", len(self._terminator().operands))
        around = explicit_affinity(function)
        self.top = self._collect(self.block, around)
        constants = parameters_of(function)
        argument_pins = pins(function, "arg_attrs", len(self.block.arguments))
        for argument, pin in zip(self.block.arguments, argument_pins, strict=True):
            if argument not in constants and is_tensor(argument):
                self.values[argument] = Affinity((pin or around or self.default).devices[:1])
        self._solve()
        self._place_floating()

    def of_value(self, value: ir.Value) -> Affinity | None:
        """The devices of a tensor; None for one that is recomputed wherever it is used."""
        return self.values.get(value)

    def uses(self, value: ir.Value) -> list[Affinity]:
        """The distinct affinities of a value's readers, in order."""
        found: list[Affinity] = []
        for use in value.uses:
            for affinity in self._user(use):
                if affinity not in found:
                    found.append(affinity)
        return found

    # -- collecting ------------------------------------------------------------------------------

    def _collect(self, block: ir.Block, around: Affinity | None) -> list[AffinityNode]:
        found: list[AffinityNode] = []
        for entry in block.operations:
            operation = entry.operation
            own = explicit_affinity(operation)
            node = AffinityNode(operation, own or around, own is not None)
            found.append(node)
            self.nodes.append(node)
            if operation.name in CONTROL:
                for inner in (b for region in operation.regions for b in region.blocks):
                    for one in self._collect(inner, node.explicit):
                        node.inner += [one, *one.inner]
        return found

    def _terminator(self) -> ir.Operation:
        return self.block.operations[len(self.block.operations) - 1].operation

    # -- forward ---------------------------------------------------------------------------------

    def _solve(self) -> None:
        for _ in range(MOST_ROUNDS):
            before = dict(self.values)
            for node in self.nodes:
                self._visit(node)
            if before == self.values:
                return
        name = symbol_name(self.function)
        raise CompileError(
            f"@{name}: where its operations run does not settle in {MOST_ROUNDS} rounds; "
            "give affinities to the values that its loops pass on"
        )

    def _visit(self, node: AffinityNode) -> None:
        operation = node.operation
        if operation.name == TRANSFER_OP:
            to = parse_affinity(ir.StringAttr(operation.attributes[TO]).value)
            node.affinity = self._chosen(to, operation) or Affinity(to.devices[:1])
        elif operation.name in CONTROL:
            self._visit_control(node)
            return
        elif operation.name == LOOP_OP:  # a loop over several devices: each result is on one
            for result, device in zip(operation.results, names_in(operation, HOMES), strict=True):
                self.values[result] = parse_affinity(device)
            return
        elif operation.name not in TERMINATORS:
            node.affinity = self._of_operation(node)
        if node.affinity is not None and not (is_replicable(operation) and node.explicit is None):
            for result in filter(is_tensor, operation.results):
                self.values[result] = node.affinity

    def _of_operation(self, node: AffinityNode) -> Affinity | None:
        if node.explicit is not None:
            return self._chosen(node.explicit, node.operation)
        joined = self._joined(tensor_operands(node.operation))
        if joined is None or joined.device is not None:
            return joined
        tied = self._joined(
            value if value in self.values else original_tensor(value) for value in written_into(node.operation)
        )
        return tied if tied is not None and tied.device is not None else self.default

    def _chosen(self, affinity: Affinity, operation: ir.Operation) -> Affinity | None:
        """The device of an affinity on which most operands are; None if the readers determine it."""
        if affinity.device is not None:
            return affinity
        lying = Counter(
            name for value in tensor_operands(operation) if value in self.values
            for name, _ in self.values[value].devices
        )
        if not any(lying[name] for name, _ in affinity.devices):
            return None if not lying else Affinity(affinity.devices[:1])
        return Affinity((max(affinity.devices, key=lambda pair: lying[pair[0]]),))

    def _visit_control(self, node: AffinityNode) -> None:
        """Propagates operands to the arguments of blocks, and yielded values to results and, in loops, to arguments."""
        operation = node.operation
        blocks = [block for region in operation.regions for block in region.blocks]
        yields = [b.operations[len(b.operations) - 1].operation for b in blocks if len(b.operations)]
        if operation.name == "scf.for":
            first = 3  # the operands after bounds and step are carried
            carried = list(zip(operation.results, list(operation.operands)[first:], strict=False))
            for index, (result, start) in enumerate(carried):
                for target in (result, blocks[0].arguments[index + 1]):
                    self._flow((start, yields[0].operands[index]), target)
        elif operation.name == "scf.while":
            for index, start in enumerate(operation.operands):
                self._flow((start, yields[1].operands[index]), blocks[0].arguments[index])
            for index, result in enumerate(operation.results):
                passed = yields[0].operands[index + 1]
                self._flow((passed,), result)
                self._flow((passed,), blocks[1].arguments[index])
        else:
            for index, result in enumerate(operation.results):
                self._flow((end.operands[index] for end in yields), result)
        said: Affinity | None = None  # the affinity of the contents, which takes precedence over the operands'
        joined: Affinity | None = None
        for inner in node.inner:
            if inner.affinity is not None:
                joined = join_or(joined, inner.affinity)
                if inner.own or inner.operation.name == TRANSFER_OP:
                    said = join_or(said, inner.affinity)
        chosen = node.explicit and self._chosen(node.explicit, operation)
        node.affinity = chosen or said or self._single(joined or self._joined(tensor_operands(operation)))
        if node.affinity is not None:  # it runs on one device as a whole, as do all its results
            self.values.update((result, node.affinity) for result in filter(is_tensor, operation.results))

    def _flow(self, sources: Iterable[ir.Value], target: ir.Value) -> None:
        if not is_tensor(target):
            return
        joined = self._joined(sources)
        if joined is not None:
            self.values[target] = join_or(self.values.get(target), joined)

    def _joined(self, values: Iterable[ir.Value]) -> Affinity | None:
        joined: Affinity | None = None
        for value in values:
            if (affinity := self.values.get(value)) is not None:
                joined = join_or(joined, affinity)
        return joined

    def _single(self, affinity: Affinity | None) -> Affinity | None:
        """An affinity of one device; operands on several devices select the default one."""
        return affinity if affinity is None or affinity.device is not None else self.default

    # -- backward --------------------------------------------------------------------------------

    def _place_floating(self) -> None:
        """Places operations without placed operands where their results are used; cheap ones on each of the devices."""
        for node in reversed(self.nodes):
            if node.affinity is not None or node.operation.name in (*TERMINATORS, LOOP_OP):
                continue
            found: Affinity | None = None
            for result in node.operation.results:
                for affinity in self.uses(result):
                    found = join_or(found, affinity)
            if node.explicit is not None:  # several devices: restrict the readers' affinities to them
                found = Affinity((join_and(node.explicit, found) or node.explicit).devices[:1])
            replicable = is_replicable(node.operation)
            node.affinity = (found if replicable else self._single(found)) or self.default
            if not replicable:
                for result in filter(is_tensor, node.operation.results):
                    self.values[result] = node.affinity

    def _user(self, use: ir.OpOperand) -> Iterator[Affinity]:
        user = use.owner.operation
        if user.name == "func.return":
            stays = self.values.get(user.operands[use.operand_number])  # the device of a value that is not transferred
            yield self.result_pins[use.operand_number] or stays or self.default
            return
        if user.name == LOOP_OP:
            yield parse_affinity(names_in(user, WANTED)[use.operand_number])
            return
        for node in self._nodes_around(user):
            if node.operation.name == TRANSFER_OP or node.affinity is None:
                continue
            yield node.affinity
            return
        if user.name == TRANSFER_OP:
            yield parse_affinity(ir.StringAttr(user.attributes[TO]).value)

    def _nodes_around(self, operation: ir.Operation) -> Iterator[AffinityNode]:
        """The node of an operation, or of the enclosing one that is analysed."""
        if not self._by_result:
            self._index()
        current: ir.Operation | None = operation
        while current is not None and current.name != "func.func":
            key = next(iter(current.results), None)
            if key is not None and key in self._by_result:
                yield self._by_result[key]
            current = current.parent.operation if current.parent is not None else None

    def _index(self) -> None:
        # Operations are hashed by their contents, so they are identified by their results.
        self._by_result = {node.operation.results[0]: node for node in self.nodes if len(node.operation.results)}


# -- explicit affinities -------------------------------------------------------------------------


def explicit_affinity(operation: ir.Operation) -> Affinity | None:
    """The affinity in an operation's or function's own attributes."""
    if AFFINITY not in operation.attributes:
        return None
    return parse_affinity(ir.StringAttr(operation.attributes[AFFINITY]).value)


def names_in(loop: ir.Operation, attribute: str) -> list[str]:
    """The devices in an attribute of a loop, one for each operand or result."""
    return [ir.StringAttr(each).value for each in ir.ArrayAttr(loop.attributes[attribute])]


def pins(function: ir.Operation, group: str, count: int) -> list[Affinity | None]:
    """The affinities of a function's arguments (`arg_attrs`) or results (`res_attrs`). A result that is written into
    an argument is on the argument's device."""
    around = explicit_affinity(function)
    if group not in function.attributes:
        return [around] * count
    found: list[Affinity | None] = []
    for attribute in ir.ArrayAttr(function.attributes[group]):
        said = ir.DictAttr(attribute)
        own = parse_affinity(ir.StringAttr(said[AFFINITY]).value) if AFFINITY in said else None
        if own is None and DESTINATION in said:
            arguments = pins(function, "arg_attrs", len(function.regions[0].blocks[0].arguments))
            own = arguments[ir.IntegerAttr(said[DESTINATION]).value]
        found.append(own or around)
    return found


def is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.ShapedType)


def tensor_operands(operation: ir.Operation) -> Iterator[ir.Value]:
    """The outer tensors that an operation or its contents read."""
    return filter(is_tensor, captured_values(operation) if len(operation.regions) else operation.operands)


def written_into(operation: ir.Operation) -> Iterator[ir.Value]:
    """The tensors that an operation's results update."""
    if operation.name.startswith("linalg.") and "operandSegmentSizes" in operation.attributes:
        inputs = next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))
        yield from filter(is_tensor, list(operation.operands)[inputs:])
    elif operation.name in ("tensor.insert", "tensor.insert_slice"):
        yield operation.operands[1]


def is_replicable(operation: ir.Operation) -> bool:
    """Whether a value is recomputed on each device instead of transferred: sizes, scalars, constants. Values that the
    function returns are computed once."""
    tensors = [result for result in operation.results if is_tensor(result)]
    if operation.name in REPLICABLE:
        return not any(use.owner.operation.name == "func.return" for result in tensors for use in result.uses)
    return not len(operation.regions) and not tensors and bool(len(operation.results))
