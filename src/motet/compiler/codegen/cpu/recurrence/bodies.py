"""Finds the kernels in the bodies of loops, and generates code for them by the classes of `select.py`.

    scf.for … {                                      scf.for … {
      %p = linalg.generic … ins(%h, %w)                %p = call @k.body0(%h, packed %w)      contraction
      %q = linalg.generic … ins(%p, %b)       →        %n = call @k.body1(%p)                 loops
      %n = linalg.generic … ins(%q) (gates)            scf.yield %n }
      scf.yield %n }

The body is grouped like a public function (`passes/fuse/group.py`). Constants of the surrounding function are constants
of the body's kernels, so that products have packed weights. What no class supports stays in the body, on the generic
path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.attributes import CONSTANT
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.remap import remap
from motet.compiler.kernels.compose import compose
from motet.compiler.kernels.kernel import Kernel, known_product
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.reader.function_reader import read_kernel
from motet.compiler.kernels.reader.reading import Unreadable
from motet.compiler.kernels.roles import ALIASES, Role, is_unit_reshape, role_of
from motet.compiler.kernels.verify import checked
from motet.compiler.passes.fuse.group import Group, group_block

LOOPS = ("scf.for", "scf.while")

_WORK = (Role.ELEMENTWISE, Role.REDUCTION, Role.WINDOW, Role.CONTRACTION, Role.CONVOLUTION)
_COPIED = (Role.SCALAR, Role.FREE, Role.VIEW)
_FEWEST = 64  # iterations of a kernel's loops that are worth a call

Generate = Callable[[Kernel], KernelCode | None]


@dataclass(frozen=True)
class BodyKernel:
    """A kernel in a loop's body: the `operations` that it replaces, the tensors that its function takes, those of the
    operations' `results` that are read by others, the kernel, and its code."""

    operations: list[ir.Operation]
    arguments: list[ir.Value]
    results: list[ir.Value]
    kernel: Kernel
    code: KernelCode


def loop_blocks(function: ir.Operation) -> list[ir.Block]:
    """The blocks in the loops of `function` with operations on tensors, those of inner loops and branches included."""
    found: list[ir.Block] = []

    def visit(block: ir.Block, inside: bool) -> None:
        operations = [entry.operation for entry in block.operations]
        if inside and any(operation.name == "linalg.generic" for operation in operations):
            found.append(block)
        for operation in operations:
            if operation.name.startswith("scf."):
                for region in operation.regions:
                    for inner in region.blocks:
                        visit(inner, inside or operation.name in LOOPS)

    for block in function.regions[0].blocks:
        visit(block, False)
    return found


def body_kernels(
    module: ir.Module, function: ir.Operation, block: ir.Block, generate: Generate, names: Iterator[str]
) -> list[BodyKernel]:
    """The kernels of `block`, a block in a loop of `function`, that some class has code for. Nothing is changed."""
    constants = _constants(function)
    found: list[BodyKernel] = []
    for group in group_block(block).groups:
        if group.role not in _WORK:
            continue
        cut = _BodyCut.of(group, block)
        if not all(isinstance(value.type, ir.RankedTensorType) for value in (*cut.arguments, *cut.results)):
            continue
        kernel = _read(module, cut, constants, next(names))
        code = None if kernel is None or not _is_worth_a_call(kernel) else generate(kernel)
        if kernel is not None and code is not None and _is_callable(kernel, code):
            found.append(BodyKernel(group.operations, cut.arguments, cut.results, kernel, code))
    return found


def _constants(function: ir.Operation) -> list[ir.Value]:
    if "arg_attrs" not in function.attributes:
        return []
    dictionaries = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    arguments = function.regions[0].blocks[0].arguments
    return [value for value, each in zip(arguments, dictionaries, strict=True) if CONSTANT in each]


@dataclass(frozen=True)
class _BodyCut:
    """The operations of a group with copies of those that it needs, each after its operands; the outer tensors that
    they read; the results that others read."""

    operations: list[ir.Operation]
    arguments: list[ir.Value]
    results: list[ir.Value]

    @staticmethod
    def of(group: Group, block: ir.Block) -> _BodyCut:
        members = set(group.operations)
        ordered: list[ir.Operation] = []
        arguments: list[ir.Value] = []
        done: set[ir.Operation] = set()

        def visit(operation: ir.Operation) -> None:
            done.add(operation)
            for value in captured_values(operation):
                owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
                if owner is not None and (owner in members or _is_copied(owner)):
                    if owner not in done:
                        visit(owner)
                elif value not in arguments:
                    arguments.append(value)
            ordered.append(operation)

        for operation in group.operations:
            if operation not in done:
                visit(operation)
        results = [
            result for member in group.operations for result in member.results
            if any(use.owner.operation not in members for use in result.uses)
        ]
        return _BodyCut(ordered, arguments, results)


def _is_copied(operation: ir.Operation) -> bool:
    """Whether an operation is copied into the kernels that need it."""
    role = role_of(operation)
    return role in _COPIED or (operation.name in ALIASES and is_unit_reshape(operation))


def _read(module: ir.Module, cut: _BodyCut, constants: list[ir.Value], name: str) -> Kernel | None:
    """The kernel that computes `cut`; None if it cannot be read."""
    kinds = ir.FunctionType.get([value.type for value in cut.arguments], [value.type for value in cut.results])
    made = func.FuncOp(name, kinds, visibility="private", ip=ir.InsertionPoint(module.body))
    try:
        block = made.add_entry_block()
        made.operation.attributes["arg_attrs"] = ir.ArrayAttr.get([
            ir.DictAttr.get({CONSTANT: ir.UnitAttr.get()} if value in constants else {}) for value in cut.arguments
        ])
        mapping: dict[ir.Value, ir.Value] = dict(zip(cut.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for operation in cut.operations:
                copy = operation.clone()
                remap(copy, mapping)
                mapping.update(zip(operation.results, copy.results, strict=True))
            func.ReturnOp([mapping[result] for result in cut.results])
        return checked(compose(checked(read_kernel(made.operation), "reading")), "compose")
    except Unreadable:
        return None
    finally:
        made.operation.erase()


def _is_worth_a_call(kernel: Kernel) -> bool:
    counts = [known_product(stage.sizes) for stage in kernel.stages]
    return any(count is None or count >= _FEWEST for count in counts)


def _is_callable(kernel: Kernel, code: KernelCode) -> bool:
    """Whether a loop can call `code`: its extents are those of operands, and its memory is known."""
    extents = all(symbol[0] == "a" for symbol in kernel.symbols)
    return extents and not code.checks and all(isinstance(size, int) for size in code.workspaces)
