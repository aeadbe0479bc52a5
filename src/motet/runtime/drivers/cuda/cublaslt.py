"""cuBLASLt, if it is installed: runs products for which an artifact's kernels declare an equivalent library call.

    nvidia/cu13/lib/libcublasLt.so.13      pip install 'motet[cublas]' (nvidia-cublas), or PyTorch's dependency
    nvidia/cublas/lib/libcublasLt.so.12    nvidia-cublas-cu12
    libcublasLt.so.13, .12                 CUDA's toolkit, found by the dynamic linker

The library is column-major. A product of row-major matrices is computed as that of the transposed matrices:
result' = right' · left'. Reference: cuBLAS, https://docs.nvidia.com/cuda/cublas/, "Using the cuBLASLt API".
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from motet.artifact.dtypes import DTYPES
from motet.artifact.library import Algorithm, LibraryCall, LibraryOperand, show_version

MAJORS = (13, 12)  # versions of the library, in order of preference
_FOLDERS = {13: "cu13/lib", 12: "cublas/lib"}  # of the packages `nvidia-cublas` and `nvidia-cublas-cu12`

WORKSPACE = 32 << 20  # bytes of an algorithm's workspace, PyTorch's default on Hopper
_ALIGNMENT = 16  # bytes, of every buffer

_TYPES = {
    "f32": 0, "f64": 1, "f16": 2, "i8": 3, "i32": 10, "bf16": 14, "f8E4M3FN": 28, "f8E5M2": 29,
}  # fmt: skip
_COMPUTE = {"f32": 68, "tf32": 77, "f64": 70, "i32": 72}  # cublasComputeType_t
_SCALE = {"f32": "f32", "tf32": "f32", "f64": "f64", "i32": "i32"}
_SCALARS = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32}
_DEFAULT, _RELU, _BIAS, _GELU = 1, 2, 4, 32  # cublasLtEpilogue_t: bits of the epilogue
_NOT_TRANSPOSED, _TRANSPOSED = 0, 1
_SUMS_IN_FULL = 2  # reduction schemes: partial sums in the compute type, or none

# Attributes of layouts, of the operation, and of the search's preferences.
_BATCH_COUNT, _BATCH_OFFSET = 5, 6
_TRANSPOSE_A, _TRANSPOSE_B, _WHAT_FOLLOWS, _BIAS_POINTER = 3, 4, 7, 8
_MOST_WORKSPACE, _REDUCTIONS, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)

_STATUS = {
    1: "not initialised", 3: "allocation failed", 7: "invalid value", 8: "architecture mismatch", 11: "mapping error",
    13: "execution failed", 14: "internal error", 15: "not supported", 16: "licence error",
}  # fmt: skip


class CublasError(Exception):
    """A failed call of the library, with status and name; or the reason why there is no library."""


class _HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("status", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )


class Functions(Protocol):
    """The functions of the library, named without `cublasLt`; all but `version` return a status."""

    def version(self) -> int: ...

    def call(self, name: str, *arguments: Any) -> int: ...


class LoadedLibrary:
    """The library as loaded by ctypes."""

    def __init__(self, path: str) -> None:
        """Raises OSError if it cannot be loaded, AttributeError if it is not such a library."""
        library = ctypes.CDLL(path)
        self._functions: dict[str, Callable[..., int]] = {}
        for name in _FUNCTIONS:
            function = getattr(library, f"cublasLt{name}")
            function.restype = ctypes.c_int
            self._functions[name] = function
        self._version = library.cublasLtGetVersion
        self._version.restype = ctypes.c_size_t

    def version(self) -> int:
        return int(self._version())

    def call(self, name: str, *arguments: Any) -> int:
        return self._functions[name](*arguments)


_FUNCTIONS = (
    "Create", "Destroy", "MatmulDescCreate", "MatmulDescDestroy", "MatmulDescSetAttribute", "MatrixLayoutCreate",
    "MatrixLayoutDestroy", "MatrixLayoutSetAttribute", "MatmulPreferenceCreate", "MatmulPreferenceDestroy",
    "MatmulPreferenceSetAttribute", "MatmulAlgoGetHeuristic", "MatmulAlgoCheck", "Matmul",
)  # fmt: skip


def installed() -> Iterator[Functions]:
    """The installed libraries, in order of preference."""
    if sys.platform != "linux":
        return
    for major in MAJORS:
        name = f"libcublasLt.so.{major}"
        for path in (*_packaged(major, name), name):
            try:
                yield LoadedLibrary(str(path))
            except (OSError, AttributeError):
                continue
            break


def _packaged(major: int, name: str) -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec is not None else None
    paths = [Path(folder, _FOLDERS[major], name) for folder in folders or ()]
    return [path for path in paths if path.exists()]


class CublasLt:
    """The library in the context that is current at construction. Not thread-safe."""

    def __init__(self, functions: Functions) -> None:
        """Raises CublasError if it does not work with this driver or GPU."""
        self.functions = functions
        self.version = functions.version()
        self.handle = ctypes.c_void_p()
        self.check("Create", ctypes.byref(self.handle))

    @property
    def name(self) -> str:
        return f"cuBLASLt {show_version(self.version)}"

    def close(self) -> None:
        self.functions.call("Destroy", self.handle)

    def check(self, name: str, *arguments: Any) -> None:
        if status := self.functions.call(name, *arguments):
            raise CublasError(f"cublasLt{name}: {_STATUS.get(status, f'status {status}')}")

    def prepare(self, call: LibraryCall) -> Matmul:
        """Prepare `call` to run. Raises CublasError if the library has no algorithm for it."""
        matmul = Matmul(self, call)
        try:
            matmul.choose(call.algorithm)
        except CublasError:
            matmul.destroy()
            raise
        return matmul

    def algorithms(self, call: LibraryCall, most: int) -> list[Algorithm]:
        """The library's algorithms for `call`, best first by its heuristic; none if it does not support the call."""
        matmul = Matmul(self, call)
        try:
            found = matmul.search(most, WORKSPACE)
        except CublasError:
            return []
        finally:
            matmul.destroy()
        return [Algorithm(self.version, bytes(each.algorithm).hex(), each.workspace) for each in found]


def open_library(libraries: Iterator[Functions]) -> CublasLt:
    """The first library that works in the current context. Raises CublasError if none does."""
    reasons: list[str] = []
    for functions in libraries:
        try:
            return CublasLt(functions)
        except CublasError as error:
            reasons.append(f"cuBLASLt {show_version(functions.version())}: {error}")
    wanted = " or ".join(f"libcublasLt.so.{major}" for major in MAJORS)
    raise CublasError("; ".join(reasons) or f"{wanted} is not installed; pip install 'motet[cublas]'")


class Products:
    """The library of a device, opened at first use in the context that is then current."""

    def __init__(self, find: Callable[[], Iterator[Functions]]) -> None:
        self._find = find
        self._library: CublasLt | None = None
        self._reason = ""

    def library(self) -> CublasLt:
        """The library. Raises CublasError, the same one each time, if there is none."""
        if self._library is None and not self._reason:
            try:
                self._library = open_library(self._find())
            except CublasError as error:
                self._reason = str(error)
        if self._library is None:
            raise CublasError(self._reason)
        return self._library

    def close(self) -> None:
        """Close the library; call in the same context."""
        if self._library is not None:
            self._library.close()
            self._library = None


def major_of(version: int) -> int:
    return int(show_version(version).partition(".")[0])


class Matmul:
    """One product, with the library's data structures for it."""

    def __init__(self, library: CublasLt, call: LibraryCall) -> None:
        """Raises CublasError for dtypes that the library does not support."""
        self.call = call
        self.workspace = 0
        self._library = library
        self._algorithm = (ctypes.c_uint64 * 8)()
        self._operation = ctypes.c_void_p()
        self._layouts: list[ctypes.c_void_p] = []
        scalar = _SCALARS[_SCALE[call.precision]]
        self._alpha, self._beta = scalar(1), scalar(call.addend is not None)
        unknown = [operand.dtype for _, operand, *_ in call.operands() if operand.dtype not in _TYPES]
        if unknown:
            raise CublasError(f"it has no {unknown[0]}")
        try:
            self._describe()
        except CublasError:
            self.destroy()
            raise

    def _describe(self) -> None:
        call, check = self.call, self._library.check
        scale = _TYPES[_SCALE[call.precision]]
        check("MatmulDescCreate", ctypes.byref(self._operation), _COMPUTE[call.precision], scale)
        right = self._layout(call.right, call.depth, call.columns)
        left = self._layout(call.left, call.rows, call.depth)
        self._set(_TRANSPOSE_A, ctypes.c_int32(right))
        self._set(_TRANSPOSE_B, ctypes.c_int32(left))
        self._layout(call.addend or call.result, call.rows, call.columns)
        self._layout(call.result, call.rows, call.columns)
        follows = {"": 0, "relu": _RELU, "gelu": _GELU}[call.activation] | _BIAS * (call.bias is not None)
        self._set(_WHAT_FOLLOWS, ctypes.c_uint32(follows or _DEFAULT))
        if call.bias is not None:  # the search derives the alignment of vectors from it
            self._set(_BIAS_POINTER, ctypes.c_void_p(_alignment(call.bias)))

    def _layout(self, operand: LibraryOperand, rows: int, columns: int) -> int:
        """Add the column-major layout of a matrix: of its transpose, or, if it is stored transposed, of itself, which
        the product then has to transpose."""
        layout = ctypes.c_void_p()
        kind = ctypes.c_int(_TYPES[operand.dtype])
        by_rows = operand.column == 1 and (rows == 1 or operand.row >= columns)
        lines, length = (rows, columns) if by_rows else (columns, rows)
        step = operand.row if by_rows else operand.column
        self._library.check(
            "MatrixLayoutCreate", ctypes.byref(layout), kind, ctypes.c_uint64(length), ctypes.c_uint64(lines),
            ctypes.c_int64(max(step, length)),
        )
        self._layouts.append(layout)
        if self.call.batch > 1:
            for attribute, value in ((_BATCH_COUNT, ctypes.c_int32(self.call.batch)),
                                     (_BATCH_OFFSET, ctypes.c_int64(operand.batch))):
                self._library.check(
                    "MatrixLayoutSetAttribute", layout, attribute, ctypes.byref(value),
                    ctypes.c_size_t(ctypes.sizeof(value)),
                )
        return _NOT_TRANSPOSED if by_rows else _TRANSPOSED

    def _set(self, attribute: int, value: Any) -> None:
        self._library.check(
            "MatmulDescSetAttribute", self._operation, attribute, ctypes.byref(value),
            ctypes.c_size_t(ctypes.sizeof(value)),
        )

    def choose(self, algorithm: Algorithm | None) -> None:
        """Use the measured algorithm if it is of this version of the library, else the best one by the library's
        heuristic. Raises CublasError."""
        if algorithm is not None:
            own, measured = self._library.version, algorithm.library
            if major_of(own) < major_of(measured):
                raise CublasError(f"it is {show_version(own)}, too old; {show_version(measured)} was measured")
            if own == measured:
                self._take(self._checked(algorithm))
                return
        limit = WORKSPACE if algorithm is None else algorithm.workspace
        found = self.search(1, limit)
        if not found:
            raise CublasError("it has no algorithm for the product")
        self._take(found[0])

    def _checked(self, algorithm: Algorithm) -> _HeuristicResult:
        code = (ctypes.c_uint64 * 8).from_buffer_copy(bytes.fromhex(algorithm.code))
        result = _HeuristicResult()
        self._library.check(
            "MatmulAlgoCheck", self._library.handle, self._operation, *self._layouts, ctypes.byref(code),
            ctypes.byref(result),
        )
        if result.workspace > max(WORKSPACE, algorithm.workspace):
            raise CublasError(f"the algorithm wants {result.workspace:,} bytes to work in")
        result.algorithm[:] = code[:]
        return result

    def _take(self, result: _HeuristicResult) -> None:
        self._algorithm[:] = result.algorithm[:]
        self.workspace = int(result.workspace)

    def search(self, most: int, workspace: int) -> Sequence[_HeuristicResult]:
        """The best algorithms by the library's heuristic. Raises CublasError."""
        check, preference = self._library.check, ctypes.c_void_p()
        check("MatmulPreferenceCreate", ctypes.byref(preference))
        results = (_HeuristicResult * most)()
        found = ctypes.c_int()
        try:
            limits = [(_MOST_WORKSPACE, ctypes.c_uint64(workspace)), (_REDUCTIONS, ctypes.c_uint32(_SUMS_IN_FULL))]
            limits += [
                (attribute, ctypes.c_uint32(_alignment(operand)))
                for attribute, operand in zip(_ALIGNMENTS, self._matrices(), strict=True)
            ]
            for attribute, value in limits:
                check(
                    "MatmulPreferenceSetAttribute", preference, attribute, ctypes.byref(value),
                    ctypes.c_size_t(ctypes.sizeof(value)),
                )
            check(
                "MatmulAlgoGetHeuristic", self._library.handle, self._operation, *self._layouts, preference, most,
                results, ctypes.byref(found),
            )
        finally:
            self._library.functions.call("MatmulPreferenceDestroy", preference)
        return [each for each in results[: found.value] if each.status == 0]

    def _matrices(self) -> tuple[LibraryOperand, LibraryOperand, LibraryOperand, LibraryOperand]:
        """The operands in the library's order."""
        call = self.call
        return call.right, call.left, call.addend or call.result, call.result

    def run(self, addresses: Sequence[int], workspace: int, stream: Any) -> None:
        """Put the product on a stream: `addresses` are those of the launch's buffers, `workspace` that of
        `self.workspace` bytes. Call with the context current. Raises CublasError."""
        places = [
            ctypes.c_void_p(addresses[operand.buffer] + operand.offset * DTYPES[operand.dtype].itemsize)
            for operand in self._matrices()
        ]
        bias = self.call.bias
        if bias is not None:
            item = DTYPES[bias.dtype].itemsize
            self._set(_BIAS_POINTER, ctypes.c_void_p(addresses[bias.buffer] + bias.offset * item))
        (a, b, c, d), (of_a, of_b, of_c, of_d) = places, self._layouts
        self._library.check(
            "Matmul", self._library.handle, self._operation, ctypes.byref(self._alpha), a, of_a, b, of_b,
            ctypes.byref(self._beta), c, of_c, d, of_d, ctypes.byref(self._algorithm), ctypes.c_void_p(workspace),
            ctypes.c_size_t(self.workspace), ctypes.c_void_p(int(stream)),
        )

    def destroy(self) -> None:
        for layout in self._layouts:
            self._library.functions.call("MatrixLayoutDestroy", layout)
        self._layouts.clear()
        if self._operation:
            self._library.functions.call("MatmulDescDestroy", self._operation)
            self._operation = ctypes.c_void_p()


def _alignment(operand: LibraryOperand) -> int:
    """The alignment in bytes of every matrix of a batch."""
    item = DTYPES[operand.dtype].itemsize
    return math.gcd(_ALIGNMENT, operand.offset * item, operand.batch * item)
