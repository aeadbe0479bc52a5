"""A small manifest with one of everything, to write, read and damage."""

from __future__ import annotations

import numpy as np
import pytest

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
)  # fmt: skip


@pytest.fixture
def parameters() -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    return {
        "weight": random.standard_normal((3, 5)).astype(np.float32),
        "packed": random.integers(0, 255, 77).astype(np.uint8),
        "empty": np.zeros((0, 4), np.float16),
        "scalar": np.array(3, np.int64),
    }


@pytest.fixture
def members() -> dict[str, bytes]:
    return {
        "executables/main/a.o": b"\x7fELF" + bytes(range(256)) * 40,
        "executables/main/b.o": b"",
        "x": b"1",
    }


@pytest.fixture
def manifest() -> Manifest:
    signature = Signature(
        "main",
        inputs=[TensorSpec("x", ["n", 5], "f32"), TensorSpec("y", [3], "bf16")],
        results=[TensorSpec("z", [["+", "n", 1], 5], "f32"), TensorSpec("", [3], "bf16", destination=1)],
        symbols=[Symbol("n", 0, 0)],
    )
    schedule = Schedule(
        buffers=[
            ScheduleBuffer("input", ["*", "n", 20]), ScheduleBuffer("result", ["*", ["+", "n", 1], 20]),
            ScheduleBuffer("parameter", 60, 0), ScheduleBuffer("arena", 64), ScheduleBuffer("arena", 64, 0, 64),
            ScheduleBuffer("input", 6, 1),
        ],
        commands=[
            Command("dispatch", [0, 2, 3], "kernel", ["ceildiv", "n", 4], ["n"]),
            Command("copy", [3, 4], after=[0]),
            Command("dispatch", [4, 1], "kernel2", after=[0, 1]),
        ],
        arena=128,
    )  # fmt: skip
    return Manifest(
        SCHEMA_VERSION, "motet test", [signature],
        [Variant("host", "x86-64-v3", "x86_64-unknown-linux-gnu", ["avx2"], ["executables/main/a.o"],
                 {"main": schedule})],
        [Parameter("weight", "f32", [3, 5]), Parameter("packed", "u8", [77]),
         Parameter("empty", "f16", [0, 4]), Parameter("scalar", "i64", [])],
        {},
    )  # fmt: skip
