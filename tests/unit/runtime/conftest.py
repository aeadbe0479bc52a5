"""Artifacts made by hand: kernels written in LLVM IR, schedules written out."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

from motet.artifact import Artifact, write_artifact
from motet.artifact.dtypes import spelling
from motet.artifact.schema import (
    SCHEMA_VERSION,
    Command,
    Manifest,
    Parameter,
    Schedule,
    ScheduleBuffer,
    Signature,
    Symbol,
    TensorSpec,
    Variant,
)
from motet.cpu_features import machine


def elementwise(name: str, inputs: int, body: str, chunk: int = 1, element: str = "float") -> str:
    """A kernel on `inputs` arrays and one result, each task `chunk` elements; the first size limits them.

    `body` computes %y from %x0, %x1, … .
    """
    loads = "\n".join(
        f"""  %p{i} = getelementptr ptr, ptr %buffers, i64 {i}
  %b{i} = load ptr, ptr %p{i}
  %a{i} = getelementptr {element}, ptr %b{i}, i64 %i
  %x{i} = load {element}, ptr %a{i}, align 1"""
        for i in range(inputs)
    )
    return f"""
define void @{name}(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %n = load i64, ptr %sizes
  %first = mul i64 %begin, {chunk}
  %last0 = mul i64 %end, {chunk}
  %less = icmp slt i64 %last0, %n
  %last = select i1 %less, i64 %last0, i64 %n
  br label %test
test:
  %i = phi i64 [%first, %entry], [%next, %loop]
  %more = icmp slt i64 %i, %last
  br i1 %more, label %loop, label %done
loop:
{loads}
  {body}
  %po = getelementptr ptr, ptr %buffers, i64 {inputs}
  %bo = load ptr, ptr %po
  %ao = getelementptr {element}, ptr %bo, i64 %i
  store {element} %y, ptr %ao, align 1
  %next = add i64 %i, 1
  br label %test
done:
  ret void
}}"""


def build(*kernels: str) -> bytes:
    """The kernels as one relocatable object for this machine."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly("\n".join(kernels))
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(opt=2, reloc="pic", codemodel="small").emit_object(module)


def spec(name: str, *shape, dtype: str = "f32", destination: int | None = None) -> TensorSpec:
    return TensorSpec(name, list(shape), dtype, destination)


def variant(objects: list[str], schedules: dict[str, Schedule], target: str = "baseline", features=()) -> Variant:
    return Variant("host", target, f"{machine()}-unknown-linux-gnu", list(features), objects, schedules)


def artifact_of(
    functions: list[Signature],
    variants: list[Variant],
    members: dict[str, bytes],
    parameters: dict[str, np.ndarray] | None = None,
    path=None,
) -> Artifact:
    parameters = parameters or {}
    described = [Parameter(key, spelling(a.dtype), list(a.shape)) for key, a in parameters.items()]
    manifest = Manifest(SCHEMA_VERSION, "test", functions, variants, described, {})
    return write_artifact(manifest, members, parameters, path)


ADD = elementwise("add", 2, "%y = fadd float %x0, %x1")
DOUBLE = elementwise("double", 1, "%y = fadd float %x0, %x0")
SCALE = elementwise("scale", 2, "%y = fmul float %x0, %x1", chunk=4)


def add_function(name: str, rows: int, columns: int) -> tuple[Signature, Schedule]:
    """`a + b`, each task one element."""
    size = rows * columns
    signature = Signature(
        name, [spec("a", rows, columns), spec("b", rows, columns)], [spec("sum", rows, columns)]
    )
    buffers = [
        ScheduleBuffer("input", 4 * size, 0), ScheduleBuffer("input", 4 * size, 1),
        ScheduleBuffer("result", 4 * size, 0)
    ]
    return signature, Schedule(buffers, [Command("dispatch", [0, 1, 2], "add", size, [size])])


@pytest.fixture(scope="session")
def add_object() -> bytes:
    return build(ADD, DOUBLE, SCALE)


@pytest.fixture
def adder(add_object: bytes) -> Callable[..., Artifact]:
    """An artifact with one function on matrices of the given size."""

    def make(rows: int = 3, columns: int = 5, name: str = "entry") -> Artifact:
        signature, schedule = add_function(name, rows, columns)
        return artifact_of([signature], [variant(["a.o"], {name: schedule})], {"a.o": add_object})

    return make


@pytest.fixture
def weighted(add_object: bytes) -> Artifact:
    """`main(x: n x 4) = (2 x + bias[rows of x]) * x`, by way of an arena, with symbolic sizes.

    The bias is a vector of 64 elements of which the first n * 4 are added; a second function shares the kernels.
    """
    count = ["*", "n", 4]
    size = ["*", count, 4]
    second = ["*", ["ceildiv", size, 64], 64]
    signature = Signature("main", [spec("x", "n", 4)], [spec("y", "n", 4)], [Symbol("n", 0, 0)])
    schedule = Schedule(
        [
            ScheduleBuffer("input", size, 0),
            ScheduleBuffer("arena", size),
            ScheduleBuffer("parameter", size, 1),
            ScheduleBuffer("arena", size, 0, second),
            ScheduleBuffer("result", size, 0),
        ],
        [
            Command("dispatch", [0, 1], "double", count, [count]),
            Command("dispatch", [1, 2, 3], "add", count, [count], [0]),
            Command("dispatch", [3, 0, 4], "scale", ["ceildiv", count, 4], [count], [1]),
        ],
        arena=["*", 2, second],
    )
    other, other_schedule = add_function("other", 2, 2)
    parameters = {"unused": np.zeros(3, np.float64), "bias": np.arange(64, dtype=np.float32)}
    return artifact_of(
        [signature, other],
        [variant(["a.o"], {"main": schedule, "other": other_schedule})],
        {"a.o": add_object},
        parameters,
    )
