"""One artifact for many processors, and the memory that a run takes."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from examples import models

import motet
from motet.compiler.scheduling.memory import BufferLifetime, lower_bound
from motet.graphs.order import bit_set

pytestmark = pytest.mark.usefixtures("all_levels")

MACHINES = {"x86-64-v4": 62, "x86-64-v3": 62, "aarch64": 183, "riscv64": 243, "riscv64-v": 243}


@pytest.mark.parametrize("name", ["mlp_small", "encoder_small", "resnet18_small", "mobilenet_v2_small"])
def test_one_artifact_holds_code_for_every_processor_asked_for(name: str) -> None:
    levels = "+".join(MACHINES)
    artifact = motet.compile(models.MODELS[name](), devices={"": f"host{{cpu={levels}}}"}, cache=False)
    assert [variant.target for variant in artifact.manifest.variants] == list(MACHINES)
    for variant in artifact.manifest.variants:
        for member in variant.objects:
            header = bytes(artifact.member(member)[:20])
            assert header[:4] == b"\x7fELF"
            assert struct.unpack_from("<H", header, 18)[0] == MACHINES[variant.target]


def test_a_level_is_not_left_out_for_the_one_that_it_extends_on_another_device() -> None:
    levels = {"acc": "null{cpu=x86-64-v4},@cpu", "cpu": "host{cpu=x86-64-v4-amx}"}
    artifact = motet.compile("examples/two_devices.mlir", devices=levels, cache=False)
    made = [(variant.family, variant.target) for variant in artifact.manifest.variants]
    assert sorted(made) == [("host", "x86-64-v4-amx"), ("null", "x86-64-v4")]


def test_every_level_of_one_processor_gives_the_same_numbers() -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    model = models.MODELS["resnet18_small"]()
    results = []
    for level in ("x86-64-v3", "native"):
        results.append(motet.load(motet.compile(model, devices={"": f"host{{cpu={level}}}"}))(x))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [
    "resnet18_small", "mobilenet_v2_small", "encoder_small", "inception_v3_small", "unet_small", "gpt2_block_small",
    "encoder",
])
def test_the_arena_is_near_the_least_that_intermediates_need(name: str) -> None:
    artifact = motet.compile(models.MODELS[name]())
    schedule = artifact.manifest.variants[0].schedules["main"]
    lives = []
    for index, buffer in enumerate(schedule.buffers):
        uses = [number for number, command in enumerate(schedule.commands) if index in command.buffers]
        if buffer.kind == "arena":
            lives.append(BufferLifetime(buffer.bytes, bit_set(uses)))
    least, everything = lower_bound(lives), sum(int(str(life.bytes)) for life in lives)
    assert schedule.serial is not None and least <= schedule.serial <= 1.25 * least
    assert least <= int(str(schedule.arena)) <= max(1.25 * least, 1 << 20)
    assert int(str(schedule.arena)) < everything


def test_a_session_holds_its_parameters_one_arena_and_its_results() -> None:
    artifact = motet.compile(models.MODELS["resnet18_small"]())
    session = motet.load(artifact)
    x = np.zeros((1, 3, 32, 32), np.float32)
    for _ in range(3):
        session(x)
    [variant] = session.variants
    schedule = variant.schedules["main"]
    used = {buffer.index for buffer in schedule.buffers if buffer.kind == "parameter"}
    assert session.memory.parameters == sum(artifact.parameter(index).nbytes for index in used)
    assert int(str(schedule.arena)) <= session.memory.arena <= 2 * int(str(schedule.arena)) + 4096
