"""Reads one iteration of a loop over tensors as a kernel, with a number for that of the loop.

    scf.for %t … {                                             results: %n
      %x_t = tensor.extract_slice %x[%t, 0, 0] …      →        v3 = f(v0[4, i, j], v1[i, j])        for %t = 4
      %n = linalg.generic … ins(%x_t, %h)                      part written: [4, 0, 0], 1x8x16
      %z = tensor.insert_slice %n into %y[%t, 0, 0] … }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import arith, func, ir, run_pipeline
from motet.compiler.ir.attributes import CONSTANT, constant_number
from motet.compiler.ir.find import captured_values
from motet.compiler.ir.remap import remap
from motet.compiler.kernels.compose import compose
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.reader.function_reader import read_kernel
from motet.compiler.kernels.verify import checked

_CLEAN = "canonicalize,cse"


@dataclass(frozen=True)
class LoopContext:
    """What is around a loop: the tensors that it takes as arguments, which of them are constants, operations before it,
    and the number of the function's result for each of its results."""

    arguments: list[ir.Value]
    constant: list[bool]
    before: list[ir.Operation]
    results: dict[int, int]
    name: str


@dataclass(frozen=True)
class LoopIteration:
    """One iteration with a number for the loop's, as a kernel of the surroundings' arguments and the states. Its
    results are, for each carried tensor, the value made or the part written; then the states' first values. `results`
    gives them as values of the kernel; `parts` the offsets of the parts written."""

    kernel: Kernel
    carried: int
    results: list[int]
    parts: dict[int, tuple[list[int], list[int]]]

    @staticmethod
    def of(loop: ir.Operation, around: LoopContext, sequences: list[bool], number: int) -> LoopIteration | None:
        body = loop.regions[0].blocks[0]
        carried, first = list(body.arguments)[1:], list(loop.operands)[3:]
        with loop.context, ir.Location.unknown():
            module = ir.Module.create()
            kinds = [*(value.type for value in around.arguments), *(value.type for value in carried)]
            states = [value for value, sequence in zip(first, sequences, strict=True) if not sequence]
            results = [*(value.type for value in carried), *(value.type for value in states)]
            made = func.FuncOp(around.name, ir.FunctionType.get(kinds, results), ip=ir.InsertionPoint(module.body))
            block = made.add_entry_block()
            mapping: dict[ir.Value, ir.Value] = dict(
                zip([*around.arguments, *carried], block.arguments, strict=True)
            )
            with ir.InsertionPoint(block):
                mapping[body.arguments[0]] = arith.ConstantOp(body.arguments[0].type, number).result
                operations = [*around.before, *(entry.operation for entry in body.operations)]
                if not _copy_numbers(operations[:-1], states, mapping):
                    return None
                for operation in operations[:-1]:
                    copy = operation.clone()
                    remap(copy, mapping)
                    mapping.update(zip(operation.results, copy.results, strict=True))
                func.ReturnOp([mapping.get(value, value) for value in [*operations[-1].operands, *states]])
            run_pipeline(module, _CLEAN)
            entry = next(iter(module.body.operations)).operation
            attributes = [
                ir.DictAttr.get({CONSTANT: ir.UnitAttr.get()} if constant else {})
                for constant in [*around.constant, *([False] * len(carried))]
            ]
            entry.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
            return LoopIteration._read(entry, sequences)

    @staticmethod
    def _read(function: ir.Operation, sequences: list[bool]) -> LoopIteration | None:
        """Read the function, whose results each occur once from then on."""
        block = function.regions[0].blocks[0]
        end = list(block.operations)[-1].operation
        values = list(end.operands)
        parts: dict[int, tuple[list[int], list[int]]] = {}
        insertions: list[ir.Operation] = []
        for number, sequence in enumerate(sequences):
            if not sequence:
                continue
            insertion = owner_of(values[number])
            if insertion is None or insertion.name != "tensor.insert_slice":
                return None
            offsets, sizes, strides = (
                list(ir.DenseI64ArrayAttr(insertion.attributes[f"static_{name}"]))
                for name in ("offsets", "sizes", "strides")
            )
            if len(list(insertion.operands)) != 2 or set(strides) != {1}:
                return None
            parts[number] = (offsets, sizes)
            values[number] = insertion.operands[0]
            insertions.append(insertion)
        single = list(dict.fromkeys(values))
        with ir.InsertionPoint(end):
            func.ReturnOp(single, loc=end.location)
        for operation in (end, *insertions):
            operation.erase()
        inputs = [argument.type for argument in block.arguments]
        kind = ir.FunctionType.get(inputs, [value.type for value in single])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        kernel = checked(compose(checked(read_kernel(function), "reading")), "compose")
        if kernel.symbols or kernel.checks:
            return None
        external = [i for i, value in enumerate(kernel.values) if value.role == "result"]
        if len(external) != len(single):
            return None
        return LoopIteration(kernel, len(sequences), [external[single.index(value)] for value in values], parts)


def _copy_numbers(
    operations: Sequence[ir.Operation], more: Sequence[ir.Value], mapping: dict[ir.Value, ir.Value]
) -> bool:
    """Copy the constants from outside that `operations` and `more` use. False if they use other values."""
    inside = set(operations)
    for value in dict.fromkeys([*more, *(each for operation in operations for each in captured_values(operation))]):
        owner = owner_of(value)
        if value in mapping or owner in inside:
            continue
        if owner is None or not is_copied(value):
            return False
        mapping[value] = owner.clone().results[0]
    return True


def owner_of(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def is_copied(value: ir.Value) -> bool:
    """Whether a value is made anew wherever it is needed: a constant number, a splat, or memory without contents."""
    owner = owner_of(value)
    if owner is None or list(owner.operands):
        return False
    return owner.name == "tensor.empty" or (owner.name == "arith.constant" and constant_number(owner) is not None)
