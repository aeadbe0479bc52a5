"""How much of the arena concurrency may take: by default, and as --option memory-limit says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import Run

import motet
from motet.artifact.reader import Artifact
from motet.artifact.schema import Schedule
from motet.errors import CompileError, OptionError
from motet.tools.inspect import describe

pytestmark = pytest.mark.usefixtures("all_levels")

BRANCHES = 6


def branches(rows: str = "40") -> str:
    """Branches of three products each, as wide as there are inputs; products join them one after the other."""
    tensor, square = f"tensor<{rows}x40xf32>", "tensor<40x40xf32>"
    arguments = ", ".join(f"%x{branch}: {tensor}" for branch in range(BRANCHES))
    lines = [f"func.func @main({arguments}, %w: {square}) -> {tensor} {{", "  %zero = arith.constant 0.0 : f32"]
    extent = ""
    if rows == "?":
        extent = "%d"
        lines += ["  %c0 = arith.constant 0 : index", f"  %d = tensor.dim %x0, %c0 : {tensor}"]
    lines += [
        f"  %e = tensor.empty({extent}) : {tensor}",
        f"  %z = linalg.fill ins(%zero : f32) outs(%e : {tensor}) -> {tensor}",
    ]
    total = ""
    for branch in range(BRANCHES):
        value = f"%x{branch}"
        for step in range(3):
            product = f"linalg.matmul ins({value}, %w : {tensor}, {square}) outs(%z : {tensor}) -> {tensor}"
            value = f"%b{branch}_{step}"
            lines.append(f"  {value} = {product}")
        if total:
            lines.append(f"  %s{branch} = arith.addf {total}, {value} : {tensor}")
            value = f"%s{branch}"
            lines.append(f"  %t{branch} = linalg.matmul ins({value}, %w : {tensor}, {square})"
                         f" outs(%z : {tensor}) -> {tensor}")
            value = f"%t{branch}"
        total = value
    return "\n".join([*lines, f"  return {total} : {tensor}", "}"])


def inputs(rows: int) -> list[np.ndarray]:
    random = np.random.default_rng(rows)
    arrays = [random.standard_normal((rows, 40)) for _ in range(BRANCHES)]
    return [array.astype(np.float32) for array in (*arrays, random.standard_normal((40, 40)) / 6)]


def verify(artifact: Artifact, rows: int) -> None:
    *xs, w = inputs(rows)
    total = xs[0].astype(np.float64) @ w @ w @ w
    for x in xs[1:]:
        total = (total + x.astype(np.float64) @ w @ w @ w) @ w
    result = motet.load(artifact)(*xs, w)
    np.testing.assert_allclose(result, total, rtol=1e-3, atol=1e-4 * np.abs(total).max())


def compile_with(limit: int | str | None) -> tuple[Artifact, Schedule]:
    artifact = motet.compile(branches(), options={} if limit is None else {"memory-limit": limit})
    return artifact, artifact.manifest.variants[0].schedules["main"]


def concurrent_pairs(schedule: Schedule) -> int:
    earlier: list[set[int]] = []
    for command in schedule.commands:
        earlier.append(set(command.after).union(*(earlier[wait] for wait in command.after)))
    return sum(number - len(waits) for number, waits in enumerate(earlier))


@pytest.fixture(scope="module")
def default() -> Schedule:
    return compile_with(None)[1]


def test_concurrency_takes_a_quarter_of_the_arena_at_most() -> None:
    schedule = motet.compile(branches("2500")).manifest.variants[0].schedules["main"]
    assert schedule.least is not None and schedule.serial is not None and isinstance(schedule.arena, int)
    assert 1 << 20 < schedule.least <= schedule.serial
    assert schedule.arena <= max(schedule.serial, 1.25 * schedule.least)


def test_a_small_arena_costs_no_concurrency(default: Schedule) -> None:
    assert isinstance(default.arena, int) and default.arena <= 1 << 20
    assert concurrent_pairs(default) == concurrent_pairs(compile_with("1G")[1])


def test_more_memory_gives_more_concurrency_and_less_gives_less(default: Schedule) -> None:
    assert default.serial is not None and default.least is not None
    pairs = []
    for limit in (default.serial, 2 * default.serial, 20 * default.serial):
        artifact, schedule = compile_with(limit)
        assert isinstance(schedule.arena, int) and schedule.arena <= limit
        pairs.append(concurrent_pairs(schedule))
        verify(artifact, 40)
    assert pairs[0] < pairs[1] < pairs[2]
    # Sums are fused with a branch's last product; the two before need nothing of other branches.
    assert pairs[2] >= BRANCHES * (BRANCHES - 1) // 2 * 4


def test_a_limit_below_the_least_arena_names_it(default: Schedule) -> None:
    assert default.serial is not None
    with pytest.raises(CompileError, match=rf"function 'main'.*expected memory-limit={default.serial} or more"):
        compile_with(default.serial - 1)
    assert compile_with(default.serial)[1].arena == default.serial


def test_there_is_no_limit_for_extents_that_are_not_known() -> None:
    artifact = motet.compile(branches("?"))
    for rows in (1, 7, 40):
        verify(artifact, rows)
    with pytest.raises(CompileError, match=r"dynamic extents.*leave memory-limit out"):
        motet.compile(branches("?"), options={"memory-limit": 1 << 20})


def test_inspect_says_what_the_arena_is_compared_with(
    default: Schedule, motet: Run, tmp_path: Path
) -> None:
    artifact, _ = compile_with(None)
    shown = describe(artifact)["variants"][0]["schedules"]["main"]
    uses = [[n for n, c in enumerate(default.commands) if b in c.buffers] for b in range(len(default.buffers))]
    alive = [
        sum(
            -(-int(str(buffer.bytes)) // 64) * 64
            for buffer, commands in zip(default.buffers, uses, strict=True)
            if buffer.kind == "arena" and commands[0] <= moment <= commands[-1]
        )
        for moment in range(len(default.commands))
    ]
    assert shown["arena_lower_bound"] == max(alive) <= shown["arena_serial"] <= shown["memory"]["arena"]
    path = tmp_path / "branches.motet"
    artifact.save(path)
    assert "lower bound 18.8 KiB, without concurrency 18.8 KiB" in motet("inspect", path).stdout


@pytest.mark.parametrize("limit", ["", "-1", "1.5", "12KM", "many"])
def test_a_limit_that_is_no_size_is_refused(limit: str) -> None:
    with pytest.raises(OptionError, match=r"option memory-limit=.*expected bytes"):
        motet.compile(branches(), options={"memory-limit": limit})


def test_sizes_may_have_units(default: Schedule) -> None:
    assert default.serial is not None
    assert compile_with("1M")[1].arena == compile_with(1 << 20)[1].arena
