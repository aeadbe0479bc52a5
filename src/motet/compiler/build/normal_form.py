"""normal-form: a program on tensors, split by device, becomes linalg, its large constants data.

    func.func @main(%x: tensor<64x64xf32>) … {      func.func @main(%x: tensor<64x64xf32>,
      %w = arith.constant dense_resource<w> …            →            %w: … {motet.parameter = "w"}) … {
      %0 = arith.addf %x, %w : tensor<64x64xf32>           %0 = linalg.generic … ins(%x, %w) { arith.addf }

Runs after placement: where something runs is said by attributes, which upstream's passes need not keep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.frontends.complex_constants import split_complex_constants
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import func, indexing_maps, ir
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import PARAMETER, Program
from motet.compiler.ir.short_types import short_type, stored
from motet.compiler.ir.store_short import NATIVE, store_short_elements
from motet.compiler.passes.base import Pass
from motet.compiler.passes.running import run_upstream
from motet.errors import CompileError, Location

# What may stand in a program; everything else is named in an error, at its place.
DIALECTS = frozenset(
    {"builtin", "func", "arith", "math", "linalg", "tensor", "scf", "index", "affine", "complex", "ub", "tm_tensor"}
)
ASSERTION = "cf.assert"  # of the dialect that has branches otherwise; kernels check it
PARAMETER_BYTES = 4096  # constants of this size and more become parameters


@dataclass(frozen=True)
class NormalForm(Pass):
    """Raises CompileError, at its place, for an operation that no tensor program has, and for parameters without
    data."""

    name = "normal-form"

    def run(self, program: Program) -> bool:
        module, file = program.module, program.file
        run_upstream("convert-elementwise-to-linalg,canonicalize,cse,symbol-dce", module, verify_each=False)
        split_complex_constants(module)
        store_short_elements(module, NATIVE, program.resources)
        parameters = {key: _stored(array) for key, array in program.parameters.items()}
        for function in _functions(module):
            _hoist_constants(function, parameters, program.resources, file)
        for function in _functions(module):
            _require_parameters(function, parameters, file)
        program.parameters = parameters
        _check_operations(module)
        module.operation.verify()
        return True


def _functions(module: ir.Module) -> list[func.FuncOp]:
    return [function.opview for function in public_functions(module)]


def _check_operations(module: ir.Module) -> None:
    def visit(op: ir.Operation) -> ir.WalkResult:
        name = op.operation.name
        if name.split(".")[0] not in DIALECTS and name != ASSERTION:
            wrong.append(op.operation)
        return ir.WalkResult.ADVANCE

    wrong: list[ir.Operation] = []
    module.operation.walk(visit)
    if wrong:
        raise CompileError(
            f"{wrong[0].name}: operations of this dialect are not supported in a tensor program; expected "
            + ", ".join(sorted(DIALECTS - {"builtin", "ub", "complex", "tm_tensor"})),
            locate(wrong[0].location),
        )


# -- constants -------------------------------------------------------------------------------------


def _hoist_constants(
    function: func.FuncOp, parameters: dict[str, np.ndarray], resources: Mapping[str, bytes], file: str
) -> None:
    """Large floating and i8 constants become arguments; the same constant is one parameter in all
    functions."""
    constants: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.operation.name == "arith.constant" and isinstance(
            op.operation.results[0].type, ir.RankedTensorType
        ):
            constants.append(op.operation)
        return ir.WalkResult.ADVANCE

    function.operation.walk(visit)
    entry = function.regions[0].blocks[0]
    names: list[ir.Attribute] = []
    for op in constants:
        value, kind = op.attributes["value"], op.result.type
        if (resource := _resource_key(value)) is not None:
            array = _resource_array(resource, kind, resources, locate(op.location) or Location(file))
            if not _is_parameter(kind):
                op.attributes["value"] = _dense(array, kind)
                continue
            key = _unique(resource, parameters, array)
        elif isinstance(value, ir.DenseElementsAttr) and (
            (_is_parameter(kind) and not value.is_splat) or _is_uniform_weight(op, value)
        ):
            array = _dense_array(value, kind)
            key = _unique(f"constant_{len(parameters)}", parameters, array)
        else:
            continue
        parameters[key] = array
        op.result.replace_all_uses_with(entry.add_argument(kind, op.location))
        names.append(ir.DictAttr.get({PARAMETER: ir.StringAttr.get(key)}))
        op.erase()
    if not names:
        return
    before = len(entry.arguments) - len(names)
    attributes = (
        list(ir.ArrayAttr(function.attributes["arg_attrs"]))
        if "arg_attrs" in function.attributes
        else [ir.DictAttr.get({})] * before
    )
    kind = ir.FunctionType.get([argument.type for argument in entry.arguments], function.type.results)
    function.attributes["function_type"] = ir.TypeAttr.get(kind)
    function.attributes["arg_attrs"] = ir.ArrayAttr.get([*attributes, *names])


def _stored(array: np.ndarray) -> np.ndarray:
    """The data of a parameter as the module has it: integers without sign, bytes where its elements are short."""
    if array.dtype.kind == "u":
        return array.view(f"i{array.dtype.itemsize}")
    kind = short_type(array.dtype)
    return array if kind is None or kind.name in NATIVE else stored(array).view(np.int8)


def _require_parameters(function: func.FuncOp, parameters: Mapping[str, np.ndarray], file: str) -> None:
    """Every argument marked as a parameter has data of its type."""
    if "arg_attrs" not in function.attributes:
        return
    for kind, attributes in zip(
        function.type.inputs, ir.ArrayAttr(function.attributes["arg_attrs"]), strict=True
    ):
        named = ir.DictAttr(attributes)
        if PARAMETER not in named:
            continue
        key = ir.StringAttr(named[PARAMETER]).value
        array = parameters.get(key)
        have = "no data" if array is None else f"{array.dtype} of shape {list(array.shape)}"
        if (
            array is None
            or list(array.shape) != kind.shape
            or array.dtype != DTYPES.get(str(kind.element_type))
        ):
            raise CompileError(
                f"@{function.name.value}: parameter {key} is {kind}, there is {have}; "
                "expected data of that type",
                locate(function.location) or Location(file),
            )


def _unique(key: str, parameters: dict[str, np.ndarray], array: np.ndarray) -> str:
    """The key under which the same data stands already, or one that is free."""
    for there, other in parameters.items():
        same = other.dtype == array.dtype and other.shape == array.shape
        if same and (other.ctypes.data == array.ctypes.data or other.tobytes() == array.tobytes()):
            return there
    while key in parameters:
        key += "_"
    return key


def _is_parameter(kind: ir.RankedTensorType) -> bool:
    element = str(kind.element_type)
    if element not in DTYPES or not (element.startswith(("f", "bf")) or element == "i8"):
        return False
    return int(np.prod(kind.shape, dtype=np.int64)) * DTYPES[element].itemsize >= PARAMETER_BYTES


def _is_uniform_weight(op: ir.Operation, value: ir.DenseElementsAttr) -> bool:
    """Whether a constant of equal elements is a factor of a contraction or convolution: these are fastest with
    factors in memory, packed when compiling, whatever the elements are."""
    return value.is_splat and isinstance(value, ir.DenseFPElementsAttr) and any(
        use.owner.operation.name.startswith("linalg.") and _is_factor(use.owner.operation, use.operand_number)
        for use in op.result.uses
    )


def _is_factor(operation: ir.Operation, number: int) -> bool:
    """Whether operand `number` is one of two that a reduction reads together."""
    maps = indexing_maps(operation)
    if maps is None or "operandSegmentSizes" not in operation.attributes:
        return False
    written = [ir.AffineMapAttr(map_).value for map_ in maps][-1]
    inputs = next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))
    return inputs == 2 and number < 2 and written.n_dims > len(written.results)


def _dense_array(value: ir.DenseElementsAttr, kind: ir.RankedTensorType) -> np.ndarray:
    """The elements; a view of MLIR's own memory, which lives as long as the context, where numpy has
    the type."""
    dtype = DTYPES[str(kind.element_type)]
    if value.is_splat and isinstance(value, ir.DenseFPElementsAttr):
        return np.full(kind.shape, ir.FloatAttr(value.get_splat_value()).value, dtype)
    if isinstance(value, ir.DenseFPElementsAttr) and dtype.type in (np.float16, np.float32, np.float64):
        return np.asarray(value).reshape(kind.shape)
    if isinstance(value, ir.DenseIntElementsAttr):
        return np.asarray(value).astype(dtype, copy=False).reshape(kind.shape)
    # Types that the bindings give no buffer for: MLIR prints large attributes as the bytes in hexadecimal, small ones
    # element by element, of which those that are not finite are hexadecimal numbers of their bits.
    text = str(value).rsplit(":", 1)[0]
    if '"0x' in text:
        digits = text.split('"0x', 1)[1].split('"', 1)[0]
        return np.frombuffer(bytes.fromhex(digits), dtype).reshape(kind.shape)
    bits = np.dtype(f"u{dtype.itemsize}")
    elements = [
        np.array(int(item, 16), bits).view(dtype) if item.startswith("0x") else np.array(float(item), dtype)
        for item in re.findall(r"0x[0-9A-Fa-f]+|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", text.split("<", 1)[1])
    ]
    return np.array(elements, dtype).reshape(kind.shape)


def _resource_key(value: ir.Attribute) -> str | None:
    text = str(value) if not isinstance(value, ir.DenseElementsAttr) else ""
    if not text.startswith("dense_resource<"):
        return None
    return text.removeprefix("dense_resource<").split("> :")[0].strip('"')


def _resource_array(
    key: str, kind: ir.RankedTensorType, resources: Mapping[str, bytes], location: Location
) -> np.ndarray:
    dtype = DTYPES.get(str(kind.element_type))
    if dtype is None:
        raise CompileError(f"resource {key}: element type {kind.element_type} is not supported", location)
    if key not in resources:
        raise CompileError(f"resource {key} has no data; expected it under `dialect_resources`", location)
    data, expected = resources[key], int(np.prod(kind.shape, dtype=np.int64)) * dtype.itemsize
    if len(data) != expected:
        raise CompileError(f"resource {key}: {kind} needs {expected} bytes, there are {len(data)}", location)
    return np.frombuffer(data, dtype).reshape(kind.shape)


def _dense(array: np.ndarray, kind: ir.RankedTensorType) -> ir.Attribute:
    """A dense attribute of a few elements."""
    if array.dtype == np.bool_:
        array = np.packbits(array, bitorder="little")
    return (
        ir.DenseElementsAttr.get(np.ascontiguousarray(array).view(np.uint8).reshape(-1), type=kind)
        if array.dtype.kind == "V"
        else ir.DenseElementsAttr.get(np.ascontiguousarray(array), type=kind)
    )
