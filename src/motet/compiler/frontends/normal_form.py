"""The last step of every frontend: from a parsed or built module to a `Program` in normal form."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from motet.artifact.dtypes import DTYPES
from motet.compiler.frontends.buffers import debufferise, has_buffers
from motet.compiler.frontends.complex_constants import split_complex_constants
from motet.compiler.frontends.crop_pads import CropPads
from motet.compiler.frontends.gpu.keep_launches import launches, pass_scalars, settle_launches
from motet.compiler.frontends.gpu.keep_loops import keep_loops
from motet.compiler.frontends.gpu.lower_launches import LowerLaunches
from motet.compiler.frontends.locations import compile_error, locate
from motet.compiler.frontends.lower_complex_functions import LowerComplexFunctions
from motet.compiler.frontends.raising.raise_loops import raise_loops
from motet.compiler.frontends.read_value_extents import ReadValueExtents
from motet.compiler.ir._mlir import func, indexing_maps, ir, run_pipeline
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import NAME, OF_EXTENTS, PARAMETER, Place
from motet.compiler.ir.short_types import SHORT_TYPES, short_type, stored
from motet.compiler.ir.source_names import keep_operators
from motet.compiler.ir.store_short import NATIVE, store_short_elements
from motet.compiler.ir.uses_devices import uses_devices
from motet.compiler.kernels.kernel import ITEM_BITS
from motet.compiler.passes.running import run_on_module
from motet.compiler.placement.anchor_operations import AnchorOperations
from motet.compiler.placement.erase_devices import erase_devices
from motet.compiler.placement.inline_calls import InlineCalls, refuse_recursion
from motet.compiler.placement.place import read_devices
from motet.compiler.placement.read_devices import declarations
from motet.errors import CompileError, Location
from motet.tools.arguments import Program

# The operations that a program may contain; any other is refused, with its place.
DIALECTS = frozenset(
    {"builtin", "func", "arith", "math", "linalg", "tensor", "scf", "index", "affine", "complex", "ub", "tm_tensor"}
)
PARAMETER_BYTES = 4096  # constants of this size and more become parameters


def normal_form(
    module: ir.Module,
    file: str,
    resources: Mapping[str, bytes] | None = None,
    given: Mapping[str, np.ndarray] | None = None,
    place: Place = erase_devices,
) -> Program:
    """The program that `module` holds; the module is rewritten in place and belongs to the result.

    `resources` has the data of `dense_resource<key>` attributes. The module may contain private functions, tosa and
    affine operations, memrefs, and arguments already marked `motet.parameter`, with their data in `given`. `place`
    assigns its operations to devices. Raises CompileError.
    """
    with module.context, ir.Location.unknown():
        split_complex_constants(module)
        read_devices(module)
        _require_public(module, file)
        try:
            run_on_module(CropPads(), module)
            _lower(module)
            run_on_module(LowerComplexFunctions(), module)
            if settle_launches(module):
                _inline(module)
            for function in launches(module):
                debufferise(function)
                _tensors_only(function)
            for function in _functions(module):
                if has_buffers(function):
                    raise_loops(function)
                    debufferise(function)
                _tensors_only(function)
                pass_scalars(function)
            _drop_globals(module)
            # Attributes assign operations to devices; the passes below need not keep attributes.
            split_complex_constants(module)
            placement = place(module)
            run_pipeline(module, "convert-elementwise-to-linalg,canonicalize,cse,symbol-dce")
            split_complex_constants(module)
            store_short_elements(module, NATIVE, resources)
            if placement is None:
                run_on_module(ReadValueExtents(), module)
            parameters = {key: _stored(array) for key, array in (given or {}).items()}
            for function in _functions(module):
                _hoist_constants(function, parameters, resources or {}, file)
            for function in _functions(module):
                _require_parameters(function, parameters, file)
            _check_operations(module)
            module.operation.verify()
        except ir.MLIRError as error:
            raise compile_error(error, file) from None
    return Program(module, parameters, placement)


def _functions(module: ir.Module) -> list[func.FuncOp]:
    return [function.opview for function in public_functions(module)]


def _require_public(module: ir.Module, file: str) -> None:
    functions = [op for op in module.body.operations if isinstance(op, func.FuncOp)]
    if len(declarations(module)) == len(module.body.operations) > 0:
        return  # a module of devices alone is allowed, to query which devices of a machine match them
    if not public_functions(module):
        there = (
            ", ".join(f"@{function.name.value} (private)" for function in functions) or "no function at all"
        )
        raise CompileError(
            f"no public function; expected at least one func.func that is not private, there is {there}",
            locate(functions[0].location) if functions else Location(file),
        )
    for function in functions:
        if not list(function.regions[0].blocks):
            raise CompileError(
                f"function @{function.name.value} has no body; expected its definition in the same file",
                locate(function.location) or Location(file),
            )


def _lower(module: ir.Module) -> None:
    """Inlines calls, and lowers the dialects that upstream lowers to linalg."""
    dialects = _dialects(module)
    if "gpu" in dialects:
        run_on_module(LowerLaunches(), module)
        dialects = _dialects(module)
    if "cf" in dialects and any(len(list(one.regions[0].blocks)) > 1 for one in _functions(module)):
        run_pipeline(module, "lift-cf-to-scf")  # branches between blocks become scf.if and scf.while
    run_on_module(InlineCalls(), module)
    if "tosa" in dialects:
        run_on_module(AnchorOperations(), module)
        keep_operators(module, ("tosa.",))
        run_pipeline(
            module,
            "func.func(tosa-infer-shapes,tosa-make-broadcastable,tosa-to-linalg-named,canonicalize,"
            "tosa-layerwise-constant-fold,tosa-make-broadcastable,tosa-to-linalg),"
            "func.func(tosa-to-tensor,tosa-to-arith{include-apply-rescale=true},tosa-to-scf)",
        )
    _inline(module)
    if dialects & {"scf", "affine"}:
        keep_loops(module, _lower_loops)
    _lower_loops(module)


def _lower_loops(module: ir.Module) -> None:
    dialects = _dialects(module)
    if "affine" in dialects:
        run_pipeline(module, "lower-affine")
    if dialects & {"memref", "affine"} and dialects & {"scf", "affine"}:
        # Loop variables in memory become values, so that sums are recognised as reductions.
        run_pipeline(
            module, "func.func(scf-forall-to-for),scf-parallel-for-to-nested-fors,func.func(sroa,mem2reg)"
        )


def _drop_globals(module: ir.Module) -> None:
    """Removes globals of constants, whose readers now have the data."""
    for entry in list(module.body.operations):
        if entry.operation.name == "memref.global":
            entry.operation.erase()


def _inline(module: ir.Module) -> None:
    """Inlines all calls except those of launches that are kept."""
    run_on_module(InlineCalls(), module)
    # Upstream's inliner also canonicalizes, which drops the devices of operations.
    run_pipeline(module, "symbol-dce" if uses_devices(module) else "inline,symbol-dce")
    refuse_recursion(module)


def _dialects(module: ir.Module) -> set[str]:
    found: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.add(op.operation.name.split(".")[0])
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _check_operations(module: ir.Module) -> None:
    def visit(op: ir.Operation) -> ir.WalkResult:
        name = op.operation.name
        if name.split(".")[0] not in DIALECTS and OF_EXTENTS not in op.operation.attributes:
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


# -- signatures ------------------------------------------------------------------------------------


def _tensors_only(function: func.FuncOp) -> None:
    """Makes scalar arguments and results tensors of rank 0; refuses other types."""
    blocks = list(function.regions[0].blocks)
    entry = blocks[0]
    for index, argument in enumerate(entry.arguments):
        what = f"@{function.name.value}: argument {index}"
        tensor = _tensor_for(argument.type, what, argument.location)
        if tensor != argument.type:
            scalar = argument.type
            argument.set_type(tensor)
            first = entry.operations[0]
            extract = ir.Operation.create(
                "tensor.extract",
                results=[scalar],
                operands=[argument],
                loc=argument.location,
                ip=ir.InsertionPoint(first),
            )
            argument.replace_all_uses_except(extract.result, extract)
    results: list[ir.Type] = []
    for block in blocks:
        last = block.operations[len(block.operations) - 1].operation
        if last.name != "func.return":
            continue
        for index, value in enumerate(list(last.operands)):
            tensor = _tensor_for(value.type, f"@{function.name.value}: result {index}", last.location)
            if tensor != value.type:
                last.operands[index] = ir.Operation.create(
                    "tensor.from_elements",
                    results=[tensor],
                    operands=[value],
                    loc=last.location,
                    ip=ir.InsertionPoint(last),
                ).result
        results = [value.type for value in last.operands]
    kind = ir.FunctionType.get([argument.type for argument in entry.arguments], results)
    function.attributes["function_type"] = ir.TypeAttr.get(kind)


def _tensor_for(kind: ir.Type, what: str, location: ir.Location) -> ir.RankedTensorType:
    if isinstance(kind, ir.UnrankedTensorType):
        raise CompileError(f"{what} is the unranked {kind}; expected a ranked tensor", locate(location))
    element = kind.element_type if isinstance(kind, ir.RankedTensorType) else kind
    if str(element) not in ITEM_BITS and str(element) not in SHORT_TYPES:
        known = ", ".join(dict.fromkeys([*ITEM_BITS, *SHORT_TYPES]))
        raise CompileError(f"{what} is {kind}; expected a tensor of {known}", locate(location))
    return kind if isinstance(kind, ir.RankedTensorType) else ir.RankedTensorType.get([], kind)


# -- constants -------------------------------------------------------------------------------------


def _hoist_constants(
    function: func.FuncOp, parameters: dict[str, np.ndarray], resources: Mapping[str, bytes], file: str
) -> None:
    """Makes large floating-point and i8 constants arguments; equal constants become one parameter in all
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
    """The data of a parameter as the module stores it: signless bytes for elements narrower than a byte."""
    kind = short_type(array.dtype)
    return array if kind is None or kind.name in NATIVE else stored(array).view(np.int8)


def _require_parameters(function: func.FuncOp, parameters: Mapping[str, np.ndarray], file: str) -> None:
    """Checks that every argument marked as a parameter has data of its type."""
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
    """The key under which equal data is already stored, or an unused one."""
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
    """Whether a splat constant is an operand of a contraction or convolution: these are fastest with operands in
    memory, packed when compiling, whatever the elements are."""
    return value.is_splat and isinstance(value, ir.DenseFPElementsAttr) and any(
        use.owner.operation.name.startswith("linalg.") and _is_factor(use.owner.operation, use.operand_number)
        for use in op.result.uses
    )


def _is_factor(operation: ir.Operation, number: int) -> bool:
    """Whether operand `number` is one of two operands that a reduction reads together."""
    maps = indexing_maps(operation)
    if maps is None or "operandSegmentSizes" not in operation.attributes:
        return False
    written = [ir.AffineMapAttr(map_).value for map_ in maps][-1]
    inputs = next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))
    return inputs == 2 and number < 2 and written.n_dims > len(written.results)


def _dense_array(value: ir.DenseElementsAttr, kind: ir.RankedTensorType) -> np.ndarray:
    """The elements; if numpy has their type, as a view of MLIR's memory, which lives as long as the context."""
    dtype = DTYPES[str(kind.element_type)]
    if value.is_splat and isinstance(value, ir.DenseFPElementsAttr):
        return np.full(kind.shape, ir.FloatAttr(value.get_splat_value()).value, dtype)
    if isinstance(value, ir.DenseFPElementsAttr) and dtype.type in (np.float16, np.float32, np.float64):
        return np.asarray(value).reshape(kind.shape)
    if isinstance(value, ir.DenseIntElementsAttr):
        return np.asarray(value).astype(dtype, copy=False).reshape(kind.shape)
    # The bindings give no buffer for these types. MLIR prints large attributes as hexadecimal bytes, and small ones
    # element by element, where elements that are not finite are the hexadecimal number of their bits.
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
    """A dense attribute of few elements."""
    if array.dtype == np.bool_:
        array = np.packbits(array, bitorder="little")
    return (
        ir.DenseElementsAttr.get(np.ascontiguousarray(array).view(np.uint8).reshape(-1), type=kind)
        if array.dtype.kind == "V"
        else ir.DenseElementsAttr.get(np.ascontiguousarray(array), type=kind)
    )


__all__ = ["DIALECTS", "NAME", "PARAMETER_BYTES", "normal_form"]
