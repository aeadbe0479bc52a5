"""Compares results with an oracle's, and finds the first kernel responsible for a difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.artifact.schema import Signature, TensorSpec
from motet.artifact.visible import visible
from motet.compiler import pipeline
from motet.compiler.build.partitioning import Partitioned, partition, read_kernels
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.functions import public_functions, symbol_name
from motet.compiler.ir.program import Program
from motet.compiler.job import VerifyReport
from motet.compiler.scheduling.signatures import read_signature
from motet.compiler.targets.family import Target
from motet.compiler.verify.oracle import run_oracle
from motet.errors import CallError

# Tolerances: |a - b| <= absolute + relative · |b|, with `absolute` relative to the largest element, since sums of many
# terms lose small elements to cancellation.
TOLERANCES = {"f64": 1e-10, "f32": 2e-5, "f16": 5e-3, "bf16": 4e-2}


Oracle = Callable[[list[np.ndarray]], list[np.ndarray]]


def verify(
    program: Program, function: str, arrays: Mapping[str, np.ndarray], targets: list[Target], jobs: int,
    oracle: Oracle | None = None,
) -> VerifyReport:
    """Compare `arrays["result0"]`, … with the results of `oracle`, by default upstream's lowering of `program`, for the
    inputs `arrays["input0"]`, …."""
    copy = Program(ir.Module.parse(str(program.module)), program.parameters)
    signature = _signature(copy, function)
    called = visible(signature)
    inputs = [_typed(arrays[f"input{i}"], spec.dtype) for i, spec in enumerate(called.inputs)]
    results = [_typed(arrays[f"result{i}"], spec.dtype) for i, spec in enumerate(called.results)]
    expected = run_oracle(program, function, inputs) if oracle is None else oracle(inputs)
    ok, lines = _compare_all(results, expected, called.results)
    if ok:
        return VerifyReport(True, lines)
    if oracle is not None:
        own = run_oracle(program, function, inputs)
        if _compare_all(results, own, called.results)[0]:
            lines.append("upstream's lowering of the program agrees with the results: the difference is in how the "
                         "source is read, or is the oracle's")
            return VerifyReport(False, lines)
    lines.append(_blame(copy, function, inputs, targets, jobs))
    return VerifyReport(False, lines)


def _compare_all(
    results: Sequence[np.ndarray], expected: Sequence[np.ndarray], specs: Sequence[TensorSpec]
) -> tuple[bool, list[str]]:
    """Whether all results agree, and a line for each."""
    found = [compare(result, wanted, spec.dtype)
             for result, wanted, spec in zip(results, expected, specs, strict=True)]
    lines = [f"result {index} ({spec.name}): {line}"
             for index, (spec, (_, line)) in enumerate(zip(specs, found, strict=True))]
    return all(agrees for agrees, _ in found), lines


def compare(result: np.ndarray, expected: np.ndarray, dtype: str) -> tuple[bool, str]:
    """Whether two arrays agree within the tolerance of `dtype`, and a line that describes their difference."""
    if result.shape != expected.shape:
        return False, f"shape {result.shape} differs from {expected.shape}"
    if dtype not in TOLERANCES:
        wrong = np.flatnonzero(result.reshape(-1) != expected.reshape(-1))
        if not len(wrong):
            return True, "equal"
        return False, _difference(result, expected, wrong)
    a, b = result.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(a - b))
    error = np.where(np.isnan(error), np.inf, error)
    scale = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
    allowed = TOLERANCES[dtype] * np.maximum(np.where(np.isfinite(b), np.abs(b), 0.0), scale)
    worst = float(error.max(initial=0.0))
    if bool(np.all(error <= allowed)):
        return True, f"agrees; max abs error {worst:.3g}, largest element {scale:.3g}"
    return False, _difference(result, expected, np.flatnonzero((error > allowed).reshape(-1)))


def _difference(result: np.ndarray, expected: np.ndarray, wrong: np.ndarray) -> str:
    where = np.unravel_index(int(wrong[0]), result.shape)
    index = ", ".join(str(int(i)) for i in where)
    return f"{len(wrong)} elements differ, the first at [{index}]: {result[where]}, expected {expected[where]}"


def _typed(array: np.ndarray, dtype: str) -> np.ndarray:
    wanted = DTYPES[dtype]
    return array if array.dtype == wanted else array.view(wanted)


def _signature(program: Program, function: str) -> Signature:
    pipeline.normalise(program)
    kernels = partition(program)
    for candidate in public_functions(program.module):
        if symbol_name(candidate) == function:
            return read_signature(candidate, kernels.shapes_of(candidate))
    known = ", ".join(symbol_name(f) for f in public_functions(program.module))
    raise CallError(f"no function {function}; there are: {known}")


def _blame(
    program: Program, function: str, inputs: list[np.ndarray], targets: list[Target], jobs: int
) -> str:
    """The first kernel, in program order, whose results differ from the oracle's. `program` is partitioned; its
    functions are changed to return every kernel's results."""
    from motet.artifact.writer import write_artifact
    from motet.runtime import load

    entry = next(f for f in public_functions(program.module) if symbol_name(f) == function)
    names = _return_everything(entry)
    kernels = read_kernels(program)
    partitioned = Partitioned(program, kernels, program, kernels)
    built = pipeline.build_partitioned(partitioned, targets, jobs, lambda what, fraction: None)
    with load(write_artifact(built.manifest, built.members, built.parameters)) as session:
        results = session[function](*inputs)
    results = results if isinstance(results, tuple) else (results,)
    expected = run_oracle(program, function, inputs)
    for name, result, wanted in zip(names, results, expected, strict=True):
        dtype = next(d for d, kind in DTYPES.items() if kind == wanted.dtype)
        agrees, line = compare(result, wanted, dtype)
        if not agrees:
            return f"first kernel that disagrees: {name}: {line}"
    return "every kernel by itself agrees: the difference is in how they are put together"


def _return_everything(function: ir.Operation) -> list[str]:
    """Make `function` return exactly the results of all its calls; returns the callee's name for each result."""
    block = function.regions[0].blocks[0]
    calls = [o.operation for o in block.operations if o.operation.name == "func.call"]
    values = [result for call in calls for result in call.results]
    names = [ir.FlatSymbolRefAttr(call.attributes["callee"]).value for call in calls for _ in call.results]
    terminator = block.operations[len(block.operations) - 1].operation
    with ir.InsertionPoint(terminator), terminator.location:
        ir.Operation.create("func.return", operands=values)
    terminator.erase()
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get(kind.inputs, [value.type for value in values])
    )
    if "res_attrs" in function.attributes:
        del function.attributes["res_attrs"]
    return names
