"""Runs a program by upstream's naive lowering, as the reference for Motet's own code.

Every operation becomes loops over memory (`convert-linalg-to-loops`), math calls the C library, nothing is reordered or
contracted, and the LLVM in MLIR's wheel compiles and runs it. No code generator of Motet is involved. It is slow by
design: an optimised kernel takes a hundredth of the time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.artifact.states import INITIAL_STATE
from motet.compiler.ir._mlir import execution_engine, func, ir, run_pipeline
from motet.compiler.ir.decompose import copies_to_linalg, decompose, emulate_bfloat16, own_memory
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.guard_divisions import guard_divisions
from motet.compiler.ir.program import PARAMETER, Program, state_of, value_of
from motet.compiler.ir.translate import foreign_operations, source_location
from motet.errors import CallError, CompileError

_BUFFERIZE = (
    "func.func(linalg-generalize-named-ops),empty-tensor-to-alloc-tensor,"
    "one-shot-bufferize{bufferize-function-boundaries=1 "
    "function-boundary-type-conversion=identity-layout-map allow-return-allocs-from-loops=1},"
    "convert-bufferization-to-memref,func.func(buffer-loop-hoisting)"
)
_LOWER = (
    "func.func(convert-linalg-to-loops),func.func(expand-realloc),memref-expand,"
    "expand-strided-metadata,"
    "lower-affine,"
    "math-extend-to-supported-types{extra-types=f16 target-type=f32},"  # bf16: not all processors have its functions
    "math-expand-ops{ops=rsqrt,clampf},convert-math-to-funcs{convert-ctlz=0},convert-complex-to-libm,"
    "convert-complex-to-standard,convert-math-to-llvm,convert-math-to-libm"
)
_EXPAND = "arith-expand{include-bf16=1}"
_TO_LLVM = (
    "convert-scf-to-cf,finalize-memref-to-llvm{use-generic-functions=1},"
    "convert-complex-to-llvm,convert-math-to-llvm,convert-to-llvm,canonicalize,cse,reconcile-unrealized-casts"
)
# Called by LLVM on CPUs without a conversion from f64 to f16. A conversion by f32 would round twice; an inexact f32 is
# therefore made odd, so that the second rounding treats it as inexact.
_TO_HALF = """
llvm.func @__truncdfhf2(%x: f64) -> f16 {
  %last = llvm.mlir.constant(1 : i32) : i32
  %float = llvm.fptrunc %x : f64 to f32
  %back = llvm.fpext %float : f32 to f64
  %inexact = llvm.fcmp "one" %back, %x : f64
  %bits = llvm.bitcast %float : f32 to i32
  %parity = llvm.and %bits, %last : i32
  %odd = llvm.icmp "eq" %parity, %last : i32
  %back_size = llvm.intr.fabs(%back) : (f64) -> f64
  %size = llvm.intr.fabs(%x) : (f64) -> f64
  %grown = llvm.fcmp "ogt" %back_size, %size : f64
  %down = llvm.sub %bits, %last : i32
  %up = llvm.add %bits, %last : i32
  %beside = llvm.select %grown, %down, %up : i1, i32
  %nearest = llvm.select %odd, %bits, %beside : i1, i32
  %chosen = llvm.select %inexact, %nearest, %bits : i1, i32
  %sticky = llvm.bitcast %chosen : i32 to f32
  %half = llvm.fptrunc %sticky : f32 to f16
  llvm.return %half : f16
}
"""
# Called by LLVM on CPUs without bf16, also for constants, to the nearest number, the even one of two.
_TO_BRAIN = """
llvm.func @__truncsfbf2(%x: f32) -> bf16 {
  %half = llvm.mlir.constant(16 : i32) : i32
  %one = llvm.mlir.constant(1 : i32) : i32
  %below = llvm.mlir.constant(32767 : i32) : i32
  %quiet = llvm.mlir.constant(64 : i16) : i16
  %bits = llvm.bitcast %x : f32 to i32
  %high = llvm.lshr %bits, %half : i32
  %odd = llvm.and %high, %one : i32
  %more = llvm.add %below, %odd : i32
  %sum = llvm.add %bits, %more : i32
  %rounded = llvm.lshr %sum, %half : i32
  %number = llvm.trunc %rounded : i32 to i16
  %kept = llvm.trunc %high : i32 to i16
  %undefined = llvm.or %kept, %quiet : i16
  %nan = llvm.fcmp "uno" %x, %x : f32
  %chosen = llvm.select %nan, %undefined, %number : i1, i16
  %brain = llvm.bitcast %chosen : i16 to bf16
  llvm.return %brain : bf16
}
"""
_COMPLEX = {"complex<f32>": np.dtype(np.complex64), "complex<f64>": np.dtype(np.complex128)}


def run_oracle(program: Program, function: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of `function` of `program` on `inputs` (without the parameters), as new arrays. State has its initial
    values, and is not among the results.

    The module is not modified. Raises `CallError` for inputs that do not match the function's types and `CompileError`
    for an operation that upstream cannot lower.
    """
    results = _run(program, function, _completed(program, function, inputs))
    if function == INITIAL_STATE:
        return results
    marks = _attributes(program.module, function, "res_attrs") or [None] * len(results)
    return [result for result, mark in zip(results, marks, strict=True) if state_of(mark) is None]


def _completed(program: Program, function: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """`inputs`, and those that stand for values computed by other functions (`frontends/read_value_extents.py`)."""
    complete = [*inputs, *_states(program, function)]
    computed: dict[str, list[np.ndarray]] = {}
    for attributes in _attributes(program.module, function):
        value = value_of(attributes)
        if value is None:
            continue
        if value.function not in computed:
            taken = [one for one in _attributes(program.module, value.function) if PARAMETER not in one]
            computed[value.function] = _run(program, value.function, complete[: len(taken)])
        numbers, *_ = results = computed[value.function]
        complete.append(
            results[value.result] if value.result else np.empty((int(numbers[value.index]), 0), np.int8)
        )
    return complete


def _states(program: Program, function: str) -> list[np.ndarray]:
    """The initial values of the state that `function` reads."""
    wanted = [name for one in _attributes(program.module, function) if (name := state_of(one)) is not None]
    if not wanted:
        return []
    named = [state_of(one) for one in _attributes(program.module, INITIAL_STATE, "res_attrs")]
    initial = dict(zip(named, _run(program, INITIAL_STATE, []), strict=True))
    return [initial[name] for name in wanted]


def _attributes(module: ir.Module, function: str, group: str = "arg_attrs") -> list[ir.DictAttr]:
    """The attributes of the arguments of a function, or of its results; empty if there are none."""
    for operation in module.body.operations:
        if isinstance(operation, func.FuncOp) and operation.sym_name.value == function:
            if group in operation.attributes:
                return [ir.DictAttr(one) for one in ir.ArrayAttr(operation.attributes[group])]
            kinds = operation.type.inputs if group == "arg_attrs" else operation.type.results
            return [ir.DictAttr.get({}, module.context)] * len(kinds)
    return []


def _run(program: Program, function: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    with program.module.context, ir.Location.unknown():
        module = _clone(program.module)
        entry = _enter(module, function)
        arguments = [*inputs, *(program.parameters[key] for key in _parameters(entry))]
        arrays = _check(function, arguments, entry.type.inputs)
        return OracleCode(module, function, _lowered_kinds(module, entry)).run(arrays)


def oracle_code(module: ir.Module, function: str) -> OracleCode:
    """The code of `function` without state, parameters and inputs computed by other functions, for any number of calls.
    The module is not modified. Raises `CompileError` for an operation that upstream cannot lower."""
    with module.context, ir.Location.unknown():
        copy = _clone(module)
        entry = _enter(copy, function)
        _parameters(entry)
        return OracleCode(copy, function, _lowered_kinds(copy, entry))


def _lowered_kinds(module: ir.Module, entry: func.FuncOp) -> tuple[list[ir.Type], list[_OracleResult]]:
    """The types of a function's inputs and results. Lowers its module."""
    inputs, results = list(entry.type.inputs), [_OracleResult.of(kind) for kind in entry.type.results]
    _lower(module)
    return inputs, results


# -- lowering ------------------------------------------------------------------------------------------


def _clone(module: ir.Module) -> ir.Module:
    copy = ir.Module.create()
    for operation in module.body.operations:
        copy.body.append(operation.operation.clone())
    return copy


def _enter(module: ir.Module, name: str) -> func.FuncOp:
    """The function `name`, made callable from outside, with arguments marked read-only."""
    entry = None
    for operation in module.body.operations:
        if not isinstance(operation, func.FuncOp):
            continue
        if operation.sym_name.value == name:
            entry = operation
        elif not operation.is_external:
            operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
    if entry is None:
        raise CallError(f"function {name!r}: the program has none of that name")
    entry.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
    return entry


def _parameters(entry: func.FuncOp) -> list[str]:
    """The keys of the parameter arguments. Keeps only those argument attributes that bufferization needs."""
    attributes = [dict(_items(one)) for one in entry.arg_attrs] if "arg_attrs" in entry.attributes else []
    read_only = ir.DictAttr.get({"bufferization.writable": ir.BoolAttr.get(False)})
    entry.attributes["arg_attrs"] = ir.ArrayAttr.get([read_only] * len(entry.type.inputs))
    if "res_attrs" in entry.attributes:
        del entry.attributes["res_attrs"]
    return [one[PARAMETER].value for one in attributes if PARAMETER in one]


def _items(attributes: Any) -> list[tuple[str, Any]]:
    return [(named.name, named.attr) for named in map(attributes.__getitem__, range(len(attributes)))]


def _lower(module: ir.Module) -> None:
    try:
        run_pipeline(module, "symbol-dce")
        decompose(module)
        own_memory(module)
        run_pipeline(module, _BUFFERIZE)
        copies_to_linalg(module)
        run_pipeline(module, _LOWER)
        emulate_bfloat16(module)
        run_pipeline(module, _EXPAND)
        guard_divisions(module)
        run_pipeline(module, _TO_LLVM)
        _define_conversions(module)
    except ir.MLIRError as error:
        raise CompileError(f"upstream's lowering fails: {' '.join(str(error).split())}") from error
    for operation in foreign_operations(module):
        raise CompileError(
            f"{operation.name}: upstream has no lowering of this operation", source_location(operation)
        )


def _define_conversions(module: ir.Module) -> None:
    """Defines the functions that LLVM may call for conversions that the CPU lacks."""
    to_half = any(
        str(operation.operands[0].type) == "f64" and str(operation.results[0].type) == "f16"
        for operation in find_operations(module, "llvm.fptrunc")
    )
    for text in [_TO_HALF] * to_half + [_TO_BRAIN] * ("bf16" in str(module)):
        definition = ir.Module.parse(text)
        module.body.append(definition.body.operations[0].detach_from_parent())


# -- calling -------------------------------------------------------------------------------------------


@dataclass
class _Memory:
    """The allocations of the compiled code, kept until the results are copied."""

    blocks: dict[int, np.ndarray] = field(default_factory=dict[int, np.ndarray])

    def allocate(self, alignment: int, size: int) -> int:
        block = np.empty(size + alignment, np.uint8)
        address = -(-block.ctypes.data // alignment) * alignment
        self.blocks[address] = block
        return address

    def functions(self) -> dict[str, Any]:
        """The three functions that `finalize-memref-to-llvm{use-generic-functions}` calls."""
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        return {
            "_mlir_memref_to_llvm_alloc": ctypes.CFUNCTYPE(pointer, size)(lambda n: self.allocate(64, n)),
            "_mlir_memref_to_llvm_aligned_alloc": ctypes.CFUNCTYPE(pointer, size, size)(self.allocate),
            "_mlir_memref_to_llvm_free": ctypes.CFUNCTYPE(None, pointer)(lambda p: self.free(p)),
        }

    def free(self, address: int | None) -> None:
        if address is not None:
            self.blocks.pop(address, None)


@dataclass(frozen=True)
class _OracleResult:
    dtype: np.dtype[Any]
    rank: int

    @staticmethod
    def of(kind: ir.Type) -> _OracleResult:
        return _OracleResult(_dtype(kind), ir.RankedTensorType(kind).rank)

    def read(self, words: Sequence[int]) -> np.ndarray:
        """A copy of the memory that a descriptor (base, aligned base, offset, sizes, strides) describes."""
        shape = words[3 : 3 + self.rank]
        address = words[1] + words[2] * self.dtype.itemsize
        length = int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        memory = ctypes.string_at(address, length) if length else b""
        return np.frombuffer(memory, self.dtype).reshape(shape).copy()


def _dtype(kind: ir.Type) -> np.dtype[Any]:
    spelling = str(ir.RankedTensorType(kind).element_type)
    dtype = DTYPES.get(spelling, _COMPLEX.get(spelling))
    if dtype is None:
        raise CallError(f"tensors of {spelling} have no counterpart in numpy")
    return dtype


def _check(name: str, arguments: Sequence[np.ndarray], kinds: Sequence[ir.Type]) -> list[np.ndarray]:
    """`arguments`, dense and in the dtypes of `kinds`."""
    if len(arguments) != len(kinds):
        raise CallError(f"function {name!r}: expected {len(kinds)} inputs, not {len(arguments)}")
    arrays: list[np.ndarray] = []
    for index, (argument, kind) in enumerate(zip(arguments, kinds, strict=True)):
        tensor, array = ir.RankedTensorType(kind), np.asarray(argument)
        extents = [
            None if tensor.is_dynamic_dim(axis) else tensor.get_dim_size(axis) for axis in range(tensor.rank)
        ]
        fits = len(extents) == array.ndim and all(
            want is None or want == have for want, have in zip(extents, array.shape, strict=True)
        )
        if not fits or array.dtype.itemsize != _dtype(kind).itemsize:
            raise CallError(
                f"function {name!r}: input {index}: expected {kind}, got {array.shape} {array.dtype}"
            )
        arrays.append(np.ascontiguousarray(array).reshape(array.shape))
    return arrays


class OracleCode:
    """A function of a lowered module, compiled for calls on dense arrays. `kinds` are the types of its inputs, and its
    results."""

    def __init__(
        self, module: ir.Module, name: str, kinds: tuple[Sequence[ir.Type], Sequence[_OracleResult]]
    ) -> None:
        self.name = name
        self.inputs, self.results = kinds
        self._memory = _Memory()
        self._functions = self._memory.functions()
        self._engine = execution_engine(module)
        for symbol, function in self._functions.items():
            self._engine.raw_register_runtime(symbol, ctypes.cast(function, ctypes.c_void_p))

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of a call, as new arrays. Raises `CallError` for inputs that do not match the types, and
        `CompileError` if code cannot be linked."""
        arrays = _check(self.name, inputs, self.inputs)
        words = (ctypes.c_int64 * sum(3 + 2 * result.rank for result in self.results))()
        values = [_descriptor(array) for array in arrays]
        if self.results:
            values.insert(0, words)
        pointers = [ctypes.c_void_p(ctypes.addressof(value)) for value in values]
        packed = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, pointers))
        try:
            compiled = self._engine.lookup(self.name)
        except RuntimeError:  # upstream's lowering calls a missing run-time function
            raise CompileError(f"{self.name}: upstream's lowering makes code of it that cannot be linked") from None
        compiled(packed)
        found: list[np.ndarray] = []
        begin = 0
        for result in self.results:
            end = begin + 3 + 2 * result.rank
            found.append(result.read(words[begin:end]))
            begin = end
        self._memory.blocks.clear()
        return found


def _descriptor(array: np.ndarray) -> Any:
    """MLIR's descriptor of a dense array."""
    strides = [stride // array.itemsize for stride in array.strides]
    fields = [array.ctypes.data, array.ctypes.data, 0, *array.shape, *strides]
    return (ctypes.c_int64 * len(fields))(*fields)
