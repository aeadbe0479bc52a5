"""Artifacts of the checks' kernels, made without a compiler, for the driver for tests and for GPUs."""

from __future__ import annotations

from tests.unit.runtime.drivers.cuda.opening import KERNELS

from motet.artifact.reader import Artifact
from motet.artifact.schema import (
    SCHEMA_VERSION,
    Alternative,
    Command,
    LogicalDevice,
    Manifest,
    Plan,
    Schedule,
    ScheduleBuffer,
    Signature,
    Step,
    Symbol,
    TensorSpec,
    Variant,
)
from motet.artifact.writer import write_artifact


def affine_chain(length: int, *, in_place: bool = False, rows: int | None = None) -> Artifact:
    """`y = 2 * ( … 2 * x + 0 …) + (length - 1)` of vectors of i32, as that many kernels, with what is between them in
    the arena. `rows` is how long they are, any number if there is none; `in_place` writes to a second argument."""
    extent = "n" if rows is None else rows
    size = 4 * rows if rows is not None else ["*", "n", 4]
    results = [TensorSpec("y", [extent], "i32", 1 if in_place else None)]
    inputs = [TensorSpec("x", [extent], "i32")] + ([TensorSpec("y", [extent], "i32")] if in_place else [])
    symbols = [Symbol("n", 0, 0)] if rows is None else []
    buffers = [ScheduleBuffer("input", size, 0), ScheduleBuffer("result", size, 0)]
    step = -(-4 * rows // 64) * 64 if rows is not None else ["*", ["ceildiv", ["*", "n", 4], 64], 64]
    buffers += [
        ScheduleBuffer("arena", size, 0, index if index == 0 else ["*", step, index]) for index in range(length - 1)
    ]
    commands: list[Command] = []
    for index in range(length):
        source = 0 if index == 0 else 1 + index
        target = 1 if index == length - 1 else 2 + index
        after = [index - 1] if index else []
        commands.append(Command("dispatch", [source, target], "affine", extent, [index], after, 1))
    arena = ["*", step, length - 1] if length > 1 else 0
    schedule = Schedule(buffers, commands, arena)
    variant = Variant("cuda", "ptx70", "nvptx64-nvidia-cuda", ["ptx70"], sorted(KERNELS), {"main": schedule})
    signature = Signature("main", inputs, results, symbols)
    manifest = Manifest(SCHEMA_VERSION, "a test", [signature], [variant], [], {})
    return write_artifact(manifest, KERNELS, {})


def many_tensors(inputs: int, results: int, rows: int) -> Artifact:
    """`y_j = 2 * x_j + j` of vectors of i32, for each of the results, as one kernel each; the other inputs are not
    read."""
    size = 4 * rows
    buffers = [ScheduleBuffer("input", size, index) for index in range(inputs)]
    buffers += [ScheduleBuffer("result", size, index) for index in range(results)]
    commands = [
        Command("dispatch", [index, inputs + index], "affine", rows, [index], [], 1) for index in range(results)
    ]
    schedule = Schedule(buffers, commands)
    variant = Variant("cuda", "ptx70", "nvptx64-nvidia-cuda", ["ptx70"], sorted(KERNELS), {"main": schedule})
    signature = Signature(
        "main", [TensorSpec(f"x{index}", [rows], "i32") for index in range(inputs)],
        [TensorSpec(f"y{index}", [rows], "i32") for index in range(results)],
    )
    return write_artifact(Manifest(SCHEMA_VERSION, "a test", [signature], [variant], [], {}), KERNELS, {})


def expected_chain(x, length: int):
    """What it gives, by numpy."""
    for index in range(length):
        x = 2 * x + index
    return x


def two_gpus(rows: int, result: int = 1) -> Artifact:
    """`y = 2 * (2 * x) + 1` with the inner product on @a and the sum on @b; `result` is the device of the result."""
    spec = TensorSpec("x", [rows], "i32")
    size = 4 * rows
    regions = {name: Signature(name, [spec], [spec]) for name in ("inner", "outer")}
    schedules = {
        name: Schedule(
            [ScheduleBuffer("input", size, 0), ScheduleBuffer("result", size, 0)],
            [Command("dispatch", [0, 1], "affine", rows, [number], [], 1)],
        )
        for number, name in enumerate(regions)
    }
    variant = Variant("cuda", "ptx70", "nvptx64-nvidia-cuda", ["ptx70"], sorted(KERNELS), schedules)
    steps = [
        Step("run", 0, [0], [1], "inner"), Step("transfer", 1, [1], [2]), Step("run", 1, [2], [3], "outer"),
        Step("transfer", result, [3], [4]),
    ]
    plan = Plan(5, [0], [4], [0], [result], steps)
    manifest = Manifest(
        SCHEMA_VERSION, "a test", [Signature("main", [spec], [spec])], [variant], [], {},
        devices=[LogicalDevice(name, [Alternative("cuda", number)]) for number, name in enumerate("ab")],
        plans={"main": plan}, regions=regions,
    )
    return write_artifact(manifest, KERNELS, {})


def faulty(kernel: str) -> Artifact:
    """A function of nothing whose one kernel, with one buffer, goes wrong."""
    schedule = Schedule([ScheduleBuffer("result", 64, 0)], [Command("dispatch", [0], kernel, 1)])
    variant = Variant("cuda", "ptx70", "nvptx64-nvidia-cuda", ["ptx70"], sorted(KERNELS), {"main": schedule})
    signature = Signature("main", [TensorSpec("x", [16], "i32")], [TensorSpec("y", [16], "i32")])
    return write_artifact(Manifest(SCHEMA_VERSION, "a test", [signature], [variant], [], {}), KERNELS, {})
