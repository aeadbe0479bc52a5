"""Launches that are calls of a library's, made by hand, over a kernel that must not run; and what they calculate."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
from tests.unit.runtime.drivers.cuda.opening import KERNELS

from motet.artifact.dtypes import DTYPES
from motet.artifact.library import CUBLASLT, VERSION, Algorithm, LibraryCall, LibraryOperand
from motet.artifact.reader import Artifact
from motet.artifact.schema import SCHEMA_VERSION, Command, Manifest, Schedule, Signature, TensorSpec, Variant
from motet.artifact.schema import ScheduleBuffer as Place
from motet.artifact.writer import write_artifact
from motet.runtime.device import Buffer, Device, Executable, Reference, Work

_FOLDER = "executables/cuda/ptx70/"
NAME = "product"
ALIGNMENT = 16  # bytes, of what matrices begin at


@dataclass(frozen=True)
class Case:
    """A product of `rows` × `depth` and `depth` × `columns`, `batch` times; a factor that is `turned` lies the other
    way. `behind` elements lie before everything in its buffer."""

    rows: int
    columns: int
    depth: int
    dtype: str
    result: str
    precision: Literal["f32", "tf32", "f64", "i32"] = "f32"
    batch: int = 1
    turned: tuple[bool, bool] = (False, False)
    bias: bool = False
    addend: bool = False
    activation: Literal["", "relu", "gelu"] = ""
    behind: int = 0

    def call(self, algorithm: Algorithm | None = None) -> LibraryCall:
        left = self._operand(0, self.dtype, self.rows, self.depth, self.turned[0])
        right = self._operand(1, self.dtype, self.depth, self.columns, self.turned[1])
        number = 2
        bias = addend = None
        if self.bias:
            bias, number = LibraryOperand(number, self.result, 0, 1, 0, self.behind), number + 1
        if self.addend:
            addend, number = self._operand(number, self.result, self.rows, self.columns, False), number + 1
        return LibraryCall(
            VERSION, CUBLASLT, self.rows, self.columns, self.depth, left, right,
            self._operand(number, self.result, self.rows, self.columns, False), self.precision, self.batch, addend,
            bias, self.activation, algorithm,
        )

    def _operand(self, buffer: int, dtype: str, rows: int, columns: int, turned: bool) -> LibraryOperand:
        row, column = (1, rows) if turned else (columns, 1)
        return LibraryOperand(buffer, dtype, row, column, rows * columns if self.batch > 1 else 0, self.behind)

    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Of all buffers, the result last; what lies before them is not counted."""
        left, right = (self.rows, self.depth), (self.depth, self.columns)
        found = [(self.dtype, left[::-1] if self.turned[0] else left)]
        found.append((self.dtype, right[::-1] if self.turned[1] else right))
        shapes = [(dtype, (self.batch, *shape)) for dtype, shape in found]
        shapes += [(self.result, (self.columns,))] if self.bias else []
        whole = (self.result, (self.batch, self.rows, self.columns))
        return [*shapes, *([whole] if self.addend else []), whole]

    def inputs(self, seed: int) -> list[np.ndarray[Any, Any]]:
        random = np.random.default_rng(seed)
        return [
            random.integers(-9, 9, shape).astype(DTYPES[dtype]) if dtype.startswith("i")
            else random.standard_normal(shape, np.float32).astype(DTYPES[dtype])
            for dtype, shape in self.shapes()[:-1]
        ]

    def expected(self, inputs: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """In f64, or integers."""
        exact = np.int64 if self.precision == "i32" else np.float64
        left, right, *others = [each.astype(exact) for each in inputs]
        left = left.swapaxes(1, 2) if self.turned[0] else left
        right = right.swapaxes(1, 2) if self.turned[1] else right
        found = left @ right
        for each in others:
            found = found + each
        if self.activation == "relu":
            found = np.maximum(found, 0)
        if self.activation == "gelu":
            found = found * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (found + 0.044715 * found**3)))
        return found

    def check(self, result: np.ndarray[Any, Any], inputs: Sequence[np.ndarray[Any, Any]]) -> None:
        expected = self.expected(inputs)
        if self.precision == "i32":
            np.testing.assert_array_equal(result, expected)
            return
        rounding = {"bf16": 2**-8, "f16": 2**-10, "f64": 2**-50}.get(self.result, 2**-20)
        rounding = max(rounding, 2**-10 if self.precision == "tf32" else 0)
        scale = np.sqrt(self.depth) + 1
        np.testing.assert_allclose(result.astype("f8"), expected, rounding * 2, rounding * scale * 2)

    def objects(self, algorithm: Algorithm | None = None, **changes: object) -> dict[str, bytes]:
        """What is loaded: a kernel that would do something else, and its description with the call."""
        return described(self.call(algorithm), len(self.shapes()), **changes)


def described(call: LibraryCall | dict[str, Any], buffers: int, **changes: object) -> dict[str, bytes]:
    facts = json.loads(KERNELS[f"{_FOLDER}count.json"]) | {"kernel": NAME, "buffers": buffers, "sizes": []} | changes
    facts["library"] = call if isinstance(call, dict) else msgspec.to_builtins(call)
    return {f"a/{NAME}.ptx": KERNELS[f"{_FOLDER}count.ptx"], f"a/{NAME}.json": json.dumps(facts).encode()}


def load_case(device: Device, case: Case, algorithm: Algorithm | None = None) -> Executable:
    files = case.objects(algorithm)
    return device.load(list(files.values()), list(files))


def artifact_of(case: Case) -> Artifact:
    """A function of one launch, of the case without anything before its buffers."""
    specs = [TensorSpec(f"x{number}", list(shape), dtype) for number, (dtype, shape) in enumerate(case.shapes())]
    buffers = [
        Place("input", math.prod(shape) * DTYPES[dtype].itemsize, number)
        for number, (dtype, shape) in enumerate(case.shapes())
    ]
    last = len(specs) - 1
    buffers[last] = msgspec.structs.replace(buffers[last], kind="result", index=0)
    command = Command("dispatch", list(range(len(specs))), NAME, 1, reads=last)
    files = case.objects()
    variant = Variant(
        "cuda", "ptx70", "nvptx64-nvidia-cuda", ["ptx70"], list(files), {"main": Schedule(buffers, [command])}
    )
    signature = Signature("main", specs[:last], specs[last:])
    return write_artifact(Manifest(SCHEMA_VERSION, "a test", [signature], [variant], [], {}), files, {})


class Placed:
    """The buffers of a case on a device."""

    def __init__(self, device: Device, case: Case, seed: int) -> None:
        self.device, self.case = device, case
        self.inputs = case.inputs(seed)
        self.buffers: list[Buffer] = []
        dtype, shape = case.shapes()[-1]
        self.result = np.zeros(shape, DTYPES[dtype])
        for content in (*self.inputs, self.result):
            before = np.zeros(case.behind, content.dtype)
            whole = np.concatenate([before, content.ravel()])
            buffer = device.allocate(whole.nbytes)
            device.write(buffer, whole).wait()
            self.buffers.append(buffer)

    def check(self) -> None:
        item = self.result.dtype.itemsize
        self.device.read(self.buffers[-1], self.result, self.case.behind * item).wait()
        self.case.check(self.result, self.inputs)


def work_of(placed: Placed, first: int = 0, after: tuple[int, ...] = ()) -> Work:
    references = tuple(
        Reference(first + index, 0, buffer.bytes) for index, buffer in enumerate(placed.buffers)
    )
    return Work("launch", references, NAME, 1, (), after)


CASES = {
    "bf16": Case(256, 384, 128, "bf16", "bf16"),
    "bf16 to f32": Case(64, 96, 512, "bf16", "f32"),
    "f16, odd": Case(33, 77, 101, "f16", "f16"),
    "f32": Case(129, 65, 257, "f32", "f32"),
    "tf32": Case(128, 64, 256, "f32", "f32", "tf32"),
    "f64": Case(31, 65, 77, "f64", "f64", "f64"),
    "i8": Case(128, 64, 256, "i8", "i32", "i32", turned=(False, True)),
    "f8": Case(128, 64, 256, "f8E4M3FN", "bf16", turned=(False, True)),
    "one row": Case(1, 512, 256, "bf16", "bf16"),
    "one column": Case(512, 1, 256, "bf16", "bf16"),
    "left turned": Case(96, 64, 128, "bf16", "bf16", turned=(True, False)),
    "right turned": Case(96, 64, 128, "f32", "f32", turned=(False, True)),
    "both turned": Case(96, 64, 128, "f16", "f32", turned=(True, True)),
    "a batch": Case(64, 48, 80, "bf16", "bf16", batch=7),
    "a batch, turned, with bias": Case(64, 48, 80, "bf16", "bf16", batch=7, turned=(True, True), bias=True),
    "bias": Case(128, 96, 64, "bf16", "bf16", bias=True),
    "bias, f32": Case(61, 59, 67, "f32", "f32", bias=True),
    "relu": Case(128, 96, 64, "f16", "f16", activation="relu"),
    "bias, relu": Case(128, 96, 64, "bf16", "bf16", bias=True, activation="relu"),
    "bias, gelu": Case(128, 96, 64, "bf16", "bf16", bias=True, activation="gelu"),
    "gelu, f32": Case(64, 96, 32, "f32", "f32", "tf32", activation="gelu"),
    "addend": Case(128, 96, 64, "bf16", "bf16", addend=True),
    "bias, addend, relu": Case(128, 96, 64, "bf16", "bf16", bias=True, addend=True, activation="relu"),
    "bias, addend, gelu": Case(128, 96, 64, "f32", "f32", bias=True, addend=True, activation="gelu"),
    "behind 24 bytes": Case(64, 96, 32, "f32", "f32", bias=True, behind=6),
    "split along the sum": Case(64, 64, 16384, "bf16", "bf16", bias=True),
}  # fmt: skip
