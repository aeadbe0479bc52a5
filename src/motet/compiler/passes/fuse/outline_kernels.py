"""outline-kernels: moves every group of operations into a private function, called from the public one.

    %1 = linalg.generic … (matmul)            %2 = call @main_kernel_0(%0, %w, %b)
    %2 = linalg.generic … (add bias)     →
                                              func.func private @main_kernel_0(…)

Operations that are not work (sizes, empty tensors, views) are copied into each function that needs them. A call of a
function that represents a launch (`ir/launches.py`) becomes a kernel with that function's body.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.attributes import CONSTANT
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.launches import LAUNCH, LAUNCH_OPERANDS, LAUNCH_RESULTS
from motet.compiler.ir.program import DESTINATION, ONE_KERNEL, Program, parameters_of
from motet.compiler.ir.remap import remap
from motet.compiler.ir.source_names import NAMES, computed_names
from motet.compiler.kernels.roles import ALIASES, Role, is_unit_reshape
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.group import Group, Grouping, group_block
from motet.compiler.passes.fuse.marks import INTERLEAVED, SEPARATE_SIBLINGS, TOGETHER

KIND = "motet.kind"  # function attribute: the role of the group that became the kernel

COPIED = (Role.SCALAR, Role.FREE, Role.VIEW)


@dataclass(frozen=True)
class OutlineKernels(Pass):
    """Outlines the kernels of every public function."""

    name = "outline-kernels"

    def run(self, program: Program) -> bool:
        module, functions = program.module, public_functions(program.module)
        symbols = ir.SymbolTable(module.operation)
        for function in functions:
            _KernelOutliner(module, symbols, function).run()
        return bool(functions)


def _identifier(name: str) -> str:
    """`name` with underscores for characters not allowed in C and Python; functions may be named `main.values`, or
    `1`."""
    return re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)


@dataclass(frozen=True)
class _Cut:
    """A future kernel: the operations copied into its function, the outer values that they read, and those of their
    values that are read outside. Operations are hashed by their contents, so all cuts are made before the first
    change."""

    name: str
    kind: str
    location: ir.Location
    operations: list[ir.Operation]
    arguments: list[ir.Value]
    results: list[ir.Value]
    names: str  # in the source, of what it computes
    launch: tuple[str, ...] = ()  # for launches only: equal ones share a kernel


class _KernelOutliner:
    def __init__(self, module: ir.Module, symbols: ir.SymbolTable, function: ir.Operation) -> None:
        self.module = module
        self.symbols = symbols
        self.function = function
        self.name = _identifier(symbol_name(function))
        self.block = function.regions[0].blocks[0]
        self.terminator = self.block.operations[len(self.block.operations) - 1].operation
        self.grouping: Grouping = group_block(self.block, SEPARATE_SIBLINGS not in module.operation.attributes)
        if ONE_KERNEL in function.attributes:
            self.grouping = _one_group(self.grouping, self.block)
        self.parameters = _parameters(function, self.block)
        self.replaced: dict[ir.Value, ir.Value] = {}
        self.settled: set[ir.Value] = set()
        self.launches: dict[tuple[str, ...], str] = {}

    def run(self) -> None:
        numbers = {group: number for number, group in enumerate(self.grouping.groups)}
        for cut in [self._cut(group, numbers[group]) for group in _in_order(self.grouping)]:
            self._outline(cut)
        for operand in self.terminator.operands:
            self._settle(operand)
        self._drop_launches()
        self._drop_dead()

    def _cut(self, group: Group, number: int) -> _Cut:
        members = set(group.operations)
        arguments: list[ir.Value] = []
        operations = self._with_copies(group, members, arguments)
        results = [
            result for member in group.operations for result in member.results
            if member.name == "func.call" or any(
                self._around(use.owner.operation) not in members and self._leaves(use.owner.operation, members)
                for use in result.uses
            )
        ]
        name = f"{self.name}_kernel_{number}"
        launch: tuple[str, ...] = ()
        if len(operations) == 1 and operations[0].name == "func.call":
            places = [str(arguments.index(operand)) for operand in operations[0].operands]
            launch = (ir.FlatSymbolRefAttr(operations[0].attributes["callee"]).value, *places)
        names = computed_names(group.operations)
        return _Cut(
            name, group.role.value, group.operations[-1].location, operations, arguments, results, names, launch
        )

    def _outline(self, cut: _Cut) -> None:
        arguments = [self.replaced.get(argument, argument) for argument in cut.arguments]
        name = self.launches.get(cut.launch) or self._kernel(cut, arguments)
        if cut.launch:
            self.launches[cut.launch] = name
        for argument in arguments:
            self._settle(argument)
        with ir.InsertionPoint(self.terminator), cut.location:
            call = func.CallOp([r.type for r in cut.results], name, arguments)
        if cut.names:
            call.operation.attributes[NAMES] = ir.StringAttr.get(cut.names)
        for result, replacement in zip(cut.results, call.results, strict=True):
            result.replace_all_uses_with(replacement)
            self.replaced[result] = replacement

    def _kernel(self, cut: _Cut, arguments: list[ir.Value]) -> str:
        """Creates a function for `cut`; returns its name."""
        with cut.location:
            kernel = func.FuncOp(
                cut.name, ir.FunctionType.get([a.type for a in arguments], [r.type for r in cut.results]),
                visibility="private", ip=ir.InsertionPoint(self.module.body),
            )
            block = kernel.add_entry_block()
        self.symbols.insert(kernel.operation)
        kernel.operation.attributes[KIND] = ir.StringAttr.get(cut.kind)
        self._mark_constants(kernel.operation, arguments)
        mapping = dict(zip(cut.arguments, block.arguments, strict=True))
        mapping.update(zip(arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block), cut.location:
            for operation in cut.operations:
                if operation.name == "func.call":
                    self._take_launch(operation, cut, kernel.operation, mapping)
                else:
                    _clone(operation, mapping)
            func.ReturnOp([mapping[result] for result in cut.results])
        return kernel.operation.attributes["sym_name"].value

    def _take_launch(
        self, call: ir.Operation, cut: _Cut, kernel: ir.Operation, mapping: dict[ir.Value, ir.Value]
    ) -> None:
        """Inlines the function that `call` calls at the insertion point, and keeps its launch attributes."""
        launch = self.symbols[ir.FlatSymbolRefAttr(call.attributes["callee"]).value].operation
        block = launch.regions[0].blocks[0]
        operands = [mapping[operand] for operand in call.operands]
        own = list(kernel.regions[0].blocks[0].arguments)
        numbers = [own.index(operand) if operand in own else -1 for operand in operands]
        results = [ir.DictAttr(named) for named in ir.ArrayAttr(launch.attributes["res_attrs"])]
        written = [ir.IntegerAttr(named[DESTINATION]).value for named in results]
        kept = [written[number] for number, result in enumerate(call.results) if result in cut.results]
        kernel.attributes[LAUNCH] = launch.attributes[LAUNCH]
        kernel.attributes[LAUNCH_OPERANDS] = ir.DenseI64ArrayAttr.get(numbers)
        kernel.attributes[LAUNCH_RESULTS] = ir.DenseI64ArrayAttr.get(kept)
        inner = dict(zip(block.arguments, operands, strict=True))
        *operations, last = [entry.operation for entry in block.operations]
        for operation in operations:
            _clone(operation, inner)
        mapping.update((result, inner[o]) for result, o in zip(call.results, last.operands, strict=True))

    def _drop_launches(self) -> None:
        """Erases the calls of launches that kernels replaced, readers first."""
        for entry in reversed(list(self.block.operations)):
            operation = entry.operation
            if operation.name == "func.call":
                callee = self.symbols[ir.FlatSymbolRefAttr(operation.attributes["callee"]).value].operation
                if KIND not in callee.attributes:
                    operation.erase()

    def _settle(self, value: ir.Value) -> None:
        """Moves aliases and sizes after the calls whose results they rename, and before their readers."""
        if isinstance(value.owner, ir.Block) or value in self.settled:
            return
        self.settled.add(value)
        owner = value.owner.operation
        if owner.name != "func.call":
            for operand in owner.operands:
                self._settle(operand)
            owner.move_before(self.terminator)

    def _around(self, operation: ir.Operation) -> ir.Operation:
        """The operation of the function's block that is or contains `operation`."""
        while operation.parent is not None and operation.parent.operation != self.function:
            operation = operation.parent.operation
        return operation

    def _leaves(self, user: ir.Operation, members: set[ir.Operation]) -> bool:
        """Whether a use by `user` needs the value outside the kernel; a view that is only copied into this kernel does
        not."""
        if not self._is_copied(user):
            return True
        return any(
            use.owner.operation not in members and self._leaves(use.owner.operation, members)
            for result in user.results
            for use in result.uses
        )

    def _with_copies(
        self, group: Group, members: set[ir.Operation], arguments: list[ir.Value]
    ) -> list[ir.Operation]:
        """The group's operations with the copies that they need, in an order in which each follows its operands;
        outer values are appended to `arguments`."""
        ordered: list[ir.Operation] = []
        done: set[ir.Operation] = set()

        def visit(operation: ir.Operation) -> None:
            if operation in done:
                return
            done.add(operation)
            for value in captured_values(operation):
                owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
                if owner is not None and (owner in members or self._is_copied_for(owner, operation)):
                    visit(owner)
                elif value not in arguments and not _is_inside(value, operation):
                    arguments.append(value)
            ordered.append(operation)

        for operation in group.operations:
            visit(operation)
        return ordered

    def _is_copied_for(self, operation: ir.Operation, reader: ir.Operation) -> bool:
        """Whether `operation` is copied for `reader`; operations over whole tensors read them from memory instead."""
        whole = reader.name.startswith("tm_tensor.") and self.grouping.roles.get(operation) is Role.ALIAS
        return not whole and self._is_copied(operation)

    def _is_copied(self, operation: ir.Operation) -> bool:
        role = self.grouping.roles.get(operation)
        if role is Role.ALIAS:
            users = [use.owner.operation for use in operation.results[0].uses]
            return is_unit_reshape(operation) and any(
                user.name == "linalg.generic" or TOGETHER in user.attributes or INTERLEAVED in user.attributes
                or (self.grouping.roles.get(user) is Role.VIEW and user.name != "tensor.pad")  # convolutions read those
                or (user.name in ALIASES and self._is_copied(user)) for user in users
            )
        return role in COPIED and operation not in self.grouping.owner

    def _mark_constants(self, kernel: ir.Operation, arguments: Sequence[ir.Value]) -> None:
        dictionaries = [
            ir.DictAttr.get({CONSTANT: ir.UnitAttr.get()} if a in self.parameters else {}) for a in arguments
        ]
        kernel.attributes["arg_attrs"] = ir.ArrayAttr.get(dictionaries)

    def _drop_dead(self) -> None:
        """Erases operations that kernels replaced, readers first; those that were settled may follow their readers."""
        changed = True
        while changed:
            changed = False
            for entry in reversed(list(self.block.operations)[:-1]):
                operation = entry.operation
                if operation.name != "func.call" and not any(True for r in operation.results for _ in r.uses):
                    operation.erase()
                    changed = True


def _one_group(grouping: Grouping, block: ir.Block) -> Grouping:
    """All operations of a block as one group: many small kernels would take longer to compile and to run."""
    operations = [entry.operation for entry in block.operations][:-1]
    group = Group(Role.OPAQUE, operations)
    return Grouping([group] if operations else [], grouping.roles, dict.fromkeys(operations, group))


def _parameters(function: ir.Operation, block: ir.Block) -> set[ir.Value]:
    """The function's parameters, and reshapes of them."""
    found = set(parameters_of(function))
    for view in block.operations:
        operation = view.operation
        if operation.name in ALIASES and operation.operands[0] in found:
            found.add(operation.results[0])
    return found


def _clone(operation: ir.Operation, mapping: dict[ir.Value, ir.Value]) -> None:
    copy = operation.clone()
    remap(copy, mapping)
    mapping.update(zip(operation.results, copy.results, strict=True))


def _is_inside(value: ir.Value, operation: ir.Operation) -> bool:
    """Whether `value` is defined in the regions of `operation`."""
    owner = value.owner
    current = owner.owner if isinstance(owner, ir.Block) else owner.operation
    while current is not None:
        current = current.operation
        if current == operation:
            return True
        current = current.parent
    return False


def _in_order(grouping: Grouping) -> list[Group]:
    """The groups in an order in which each follows its dependences; otherwise in program order."""
    position = {group: i for i, group in enumerate(grouping.groups)}
    waiting = {group: len(group.depends) for group in grouping.groups}
    readers: dict[Group, list[Group]] = {group: [] for group in grouping.groups}
    for group in grouping.groups:
        for other in group.depends:
            readers[other].append(group)
    ready = [position[group] for group, count in waiting.items() if not count]
    heapq.heapify(ready)
    ordered: list[Group] = []
    while ready:
        group = grouping.groups[heapq.heappop(ready)]
        ordered.append(group)
        for reader in readers[group]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, position[reader])
    return ordered
