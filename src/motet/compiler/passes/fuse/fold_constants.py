"""fold-constants: runs kernels that only read parameters when compiling, and makes their results parameters.

    %0 = call @main_kernel_0(%w)      // %w {motet.parameter = "w"}
    %1 = call @main_kernel_1(%x, %0)                                    →    %1 = call @main_kernel_1(%x, %folded)

Results are bit-exact with the plain lowering, which the oracle runs; numpy is used where it is known to compute the
same. Equal kernels are compiled for that once: a network prepares the weights of all its layers alike.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import CONSTANT
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.launches import LAUNCH
from motet.compiler.ir.program import Program, parameters_of
from motet.compiler.kernels.roles import ALIASES, Role
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.evaluate import evaluate
from motet.compiler.passes.fuse.outline_kernels import KIND
from motet.compiler.passes.normalise.hoist_constants import add_parameter, fresh_key
from motet.compiler.verify.oracle import OracleCode, oracle_code

_FOLDED = "folded"
# What is larger than the first number of elements, and than so many times the operands, is computed in each call, and
# what is larger than the last one, if there are no operands.
LARGEST_SMALL = 1 << 16
LARGEST_GROWTH = 4
LARGEST_ALONE = 1 << 12


@dataclass(frozen=True)
class FoldConstants(Pass):
    """For programs whose kernels are functions (outline-kernels). Adds parameters to the program."""

    name = "fold-constants"

    def run(self, program: Program) -> bool:
        parameters = dict(program.parameters)
        kernels = {symbol_name(entry.operation): entry.operation for entry in program.module.body.operations}
        evaluator = _Evaluator()
        folded = [_fold(function, kernels, parameters, evaluator) for function in public_functions(program.module)]
        program.parameters = parameters
        return any(folded)


def _fold(
    function: ir.Operation, kernels: dict[str, ir.Operation], parameters: dict[str, np.ndarray], evaluator: _Evaluator
) -> bool:
    block, changed = function.regions[0].blocks[0], False
    known = {argument: parameters[key] for argument, key in parameters_of(function).items()}
    for entry in list(block.operations):
        operation = entry.operation
        if operation.name in ALIASES and operation.operands[0] in known:
            kind = operation.results[0].type
            if kind.has_static_shape:
                known[operation.results[0]] = known[operation.operands[0]].reshape(tuple(kind.shape))
        if operation.name != "func.call" or not all(operand in known for operand in operation.operands):
            continue
        kernel = kernels[ir.FlatSymbolRefAttr(operation.attributes["callee"]).value]
        results = evaluator.run(kernel, [known[operand] for operand in operation.operands])
        if results is None:
            continue
        for result, array in zip(operation.results, results, strict=True):
            key = evaluator.key(parameters, array)
            parameters[key] = array
            argument = add_parameter(function, result.type, key, operation.location)
            known[argument] = array
            result.replace_all_uses_with(argument)
            _mark(argument, kernels)
        operation.erase()
        changed = True
        if LAUNCH not in kernel.attributes:  # a launch may have other calls
            kernel.erase()
    return changed


@dataclass(frozen=True)
class _Evaluator:
    """Runs kernels on constants. `codes` are those that the oracle has compiled, by the text of their functions, and
    `keys` those of results, by dtype, shape and checksum."""

    codes: dict[str, OracleCode] = field(default_factory=dict[str, OracleCode])
    keys: dict[tuple[object, ...], list[str]] = field(default_factory=dict[tuple[object, ...], list[str]])

    def key(self, parameters: Mapping[str, np.ndarray], array: np.ndarray) -> str:
        """A key for a result: that of an equal array, if there is one."""
        data = array.tobytes()
        alike = self.keys.setdefault((array.dtype, array.shape, zlib.crc32(data)), [])
        for key in alike:
            if parameters[key].tobytes() == data:
                return key
        alike.append(fresh_key(_FOLDED, parameters))
        return alike[-1]

    def run(self, kernel: ir.Operation, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
        """The results of `kernel`; None if it has to run in each call."""
        kinds = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value).results
        if not all(kind.has_static_shape for kind in kinds):
            return None
        most = max(LARGEST_SMALL, LARGEST_GROWTH * sum(array.size for array in inputs)) if inputs else LARGEST_ALONE
        if sum(int(np.prod(kind.shape)) for kind in kinds) > most:
            return None
        if not inputs and not _is_worthwhile(kernel):
            return None
        if (found := evaluate(kernel, inputs)) is not None:
            return found
        # The oracle cannot lower scatters, does not order NaN in sorts, and cannot round f64 to bf16.
        if find_operations(kernel, "tm_tensor.scatter", "tm_tensor.sort") or any(
            str(each.operands[0].type) == "f64" and str(each.result.type) == "bf16"
            for each in find_operations(kernel, "arith.truncf")
        ):
            return None
        return self._code(kernel).run(inputs)

    def _code(self, kernel: ir.Operation) -> OracleCode:
        copy = kernel.clone()
        copy.attributes["sym_name"] = ir.StringAttr.get(_FOLDED)
        del copy.attributes["sym_visibility"]
        module = ir.Module.create(kernel.location)
        module.body.append(copy)
        text = copy.get_asm(use_local_scope=True)
        if text not in self.codes:
            self.codes[text] = oracle_code(module, _FOLDED)
        return self.codes[text]


def _is_worthwhile(kernel: ir.Operation) -> bool:
    """Whether a kernel without operands computes numbers or tables of places, which a launch would store otherwise."""
    kind = ir.StringAttr(kernel.attributes[KIND]).value
    return kind in (Role.ELEMENTWISE.value, Role.MOVEMENT.value)


def _mark(value: ir.Value, kernels: dict[str, ir.Operation]) -> None:
    """Marks `value` as constant in the kernels that read it."""
    for use in value.uses:
        user = use.owner.operation
        if user.name in ALIASES:
            _mark(user.results[0], kernels)
        elif user.name == "func.call":
            kernel = kernels[ir.FlatSymbolRefAttr(user.attributes["callee"]).value]
            attributes = list(ir.ArrayAttr(kernel.attributes["arg_attrs"]))
            attributes[use.operand_number] = ir.DictAttr.get({CONSTANT: ir.UnitAttr.get()})
            kernel.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
