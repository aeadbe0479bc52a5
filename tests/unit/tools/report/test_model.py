"""What operations read and write, and when they would run."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from tests.unit.tools.report.programs import bound, diamond, relay

from motet.artifact.schema import Manifest, Signature
from motet.runtime.trace import busy
from motet.tools.report.memory import lower_bound
from motet.tools.report.model import ArenaSlot, ReportedFunction, read_program
from motet.tools.report.prediction import Prediction, predict


def read(program: tuple[Manifest, Signature], threads: int = 1) -> ReportedFunction:
    manifest, signature = program
    names = [device.name for device in manifest.devices] or [""]
    devices = [
        bound(code.family, code, name, threads) for code, name in zip(manifest.variants, names, strict=True)
    ]
    return read_program(manifest, signature, devices)


def edges(program: ReportedFunction) -> set[tuple[str, str]]:
    return {(program.operations[a].name, program.operations[b].name) for a, b, _ in program.edges()}


def test_who_uses_a_buffer_first_writes_it() -> None:
    program = read(diamond())
    assert [operation.name for operation in program.operations] == ["x", "main_a", "main_b", "main_c", "main_d", "y"]
    assert edges(program) == {
        ("x", "main_a"), ("main_a", "main_b"), ("main_a", "main_c"), ("main_b", "main_d"), ("main_c", "main_d"),
        ("main_d", "y"),
    }


def test_phases_of_a_kernel_are_one_operation() -> None:
    operation = read(diamond()).operations[3]
    assert (operation.symbols, operation.tasks) == (["main_c_first", "main_c_second"], 2)
    assert (operation.flops, operation.bytes) == (40, 5)


@pytest.mark.parametrize("extent", [1, 7, 64])
def test_dynamic_extents_are_those_of_the_call(extent: int) -> None:
    manifest, signature = diamond("n")
    program = read_program(manifest, signature, [bound("host", manifest.variants[0])], [[extent]])
    value = program.operations[1].writes[0]
    assert (value.type, value.bytes) == ("nxf32", 4 * extent)
    assert program.regions[0].arena == 12 * extent


def test_lives_reach_from_the_writer_to_the_last_reader() -> None:
    lives = read(diamond()).regions[0].lives
    assert [(life.offset, life.first, life.last) for life in lives] == [(0, 0, 2), (64, 1, 3), (128, 2, 3)]


@pytest.mark.parametrize("seed", range(4))
def test_lower_bound_is_the_most_alive_at_once(seed: int) -> None:
    random = np.random.default_rng(seed)
    lives = [
        ArenaSlot("", "", 0, int(size), int(first), int(first) + int(length))
        for size, first, length in zip(
            random.integers(1, 1000, 30), random.integers(0, 50, 30), random.integers(0, 9, 30), strict=True
        )
    ]
    alive = np.zeros(80, np.int64)
    for life in lives:
        alive[life.first : life.last + 1] += (life.bytes + 63) // 64 * 64
    assert lower_bound(lives) == alive.max()


def ends(program: ReportedFunction, prediction: Prediction) -> dict[str, tuple[float, float]]:
    """Begin and end of each named operation, in microseconds."""
    return {
        program.operations[bar.operation].name if bar.kind == "kernel" else bar.kind:
            (round(bar.begin * 1e6, 3), round(bar.end * 1e6, 3))
        for bar in prediction.bars
    }


def test_one_thread_takes_commands_one_after_the_other() -> None:
    program = read(diamond())
    prediction = predict(program)
    assert ends(program, prediction) == {
        "main_a": (0, 10), "main_b": (10, 30), "main_c": (30, 70), "main_d": (70, 100),
    }
    assert prediction.seconds == pytest.approx(100e-6)


def test_small_commands_share_the_threads_as_a_wave() -> None:
    program = read(diamond(), threads=4)
    prediction = predict(program)
    assert ends(program, prediction) == {
        "main_a": (0, 10), "main_b": (10, 70), "main_c": (10, 70), "main_d": (70, 100),
    }
    together = [bar for bar in prediction.bars if bar.lanes == 2]
    assert sorted(bar.lane for bar in together) == [0, 1]


def test_transfers_wait_for_their_source_and_runs_for_them() -> None:
    program = read(relay())
    prediction = predict(program)
    assert ends(program, prediction) == {
        "p_kernel": (0, 300), "write": (300, 400), "q_kernel": (400, 1400), "read": (1400, 1500),
    }
    by_kind = {bar.kind: number for number, bar in enumerate(prediction.bars) if bar.kind != "kernel"}
    assert prediction.bars[by_kind["write"]].queue == 1
    assert prediction.bars[by_kind["write"]].after == (0,)
    assert prediction.critical == set(range(4))


@pytest.mark.parametrize("seed", range(3))
def test_a_queue_is_busy_while_anything_goes_on(seed: int) -> None:
    random = np.random.default_rng(seed)
    begins, lengths = random.integers(0, 90, 12), random.integers(0, 9, 12)
    taken = np.zeros(100, bool)
    for begin, length in zip(begins, lengths, strict=True):
        taken[begin : begin + length] = True
    spans = [(float(b), float(b + n)) for b, n in zip(begins, lengths, strict=True)]
    assert busy(spans) == taken.sum()


def test_a_step_takes_what_the_compiler_thought() -> None:
    manifest, signature = relay()
    plan = manifest.plans["main"]
    plan.steps[0] = replace(plan.steps[0], seconds=5e-3)
    program = read((manifest, signature))
    assert ends(program, predict(program))["p_kernel"] == (0, 5000)


def test_transfers_know_where_they_come_from() -> None:
    program = read(relay())
    transfers = [(o.source, o.device, o.bytes) for o in program.operations if o.kind == "transfer"]
    assert transfers == [(0, 1, 100), (1, 0, 100)]
