"""Commands of a batch run when those that they wait for have ended, on any number of cores, and whatever fails."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from tests.unit.runtime.drivers.riscv.opening import compile_text, kernel, needs_qemu, open_riscv

from motet.errors import KernelFault
from motet.runtime.device import Reference, Work
from motet.runtime.drivers.riscv.device import RiscvDevice
from motet.runtime.drivers.riscv.ordering import order_by_ranks

pytestmark = needs_qemu

WIDEST = 37  # tasks of a command, each of which makes one number
ROW = 8 * WIDEST

# Each task writes 1 + the sums of the rows that the command reads, which are whole only when those commands have ended.
SUMS = kernel("sums", """
  %size.at = getelementptr i64, ptr %sizes, i64 0
  %rows = load i64, ptr %size.at
  %out = load ptr, ptr %buffers
  br label %task
task:
  %t = phi i64 [ %begin, %0 ], [ %t.next, %store ]
  %t.more = icmp slt i64 %t, %end
  br i1 %t.more, label %row, label %done
row:
  %r = phi i64 [ 0, %task ], [ %r.next, %row.end ]
  %sum = phi i64 [ 1, %task ], [ %partial, %row.end ]
  %r.more = icmp slt i64 %r, %rows
  br i1 %r.more, label %read, label %store
read:
  %index = add i64 %r, 1
  %place = getelementptr ptr, ptr %buffers, i64 %index
  %from = load ptr, ptr %place
  br label %column
column:
  %c = phi i64 [ 0, %read ], [ %c.next, %column ]
  %partial.in = phi i64 [ %sum, %read ], [ %partial, %column ]
  %cell = getelementptr i64, ptr %from, i64 %c
  %value = load i64, ptr %cell
  %partial = add i64 %partial.in, %value
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, %WIDEST
  br i1 %c.more, label %column, label %row.end
row.end:
  %r.next = add i64 %r, 1
  br label %row
store:
  %result = getelementptr i64, ptr %out, i64 %t
  store i64 %sum, ptr %result
  %t.next = add i64 %t, 1
  br label %task
done:
  ret void
""".replace("%WIDEST", str(WIDEST)))
TRAP = "declare void @llvm.trap()\n" + kernel("trap", "call void @llvm.trap()\nret void")


@pytest.fixture(params=[1, 2, 4])
def device(request: pytest.FixtureRequest) -> Iterator[RiscvDevice]:
    opened = open_riscv(f"harts={request.param}", guard=0)
    yield opened
    opened.close()


def program(seed: int, count: int) -> tuple[list[int], list[tuple[int, ...]], list[float]]:
    """How many tasks commands have, what each waits for, and how long each is said to take."""
    random = np.random.default_rng(seed)
    tasks = [int(random.choice([0, 1, 2, 5, 16, WIDEST])) for _ in range(count)]
    after = [
        tuple(sorted({int(random.integers(max(0, n - 12), n)) for _ in range(int(random.integers(0, 4)))})) if n else ()
        for n in range(count)
    ]
    return tasks, after, random.choice([0.0, 1e-6, 1e-3], count).tolist()


def work_of(
    tasks: list[int], after: list[tuple[int, ...]], seconds: list[float], failing: int = -1
) -> list[Work]:
    return [
        Work(
            "launch", tuple(Reference(0, ROW * row, ROW) for row in (n, *after[n])), "trap" if n == failing else "sums",
            tasks[n] or (n == failing), (len(after[n]),), after[n], seconds=seconds[n],
        )
        for n in range(len(tasks))
    ]


def expected(tasks: list[int], after: list[tuple[int, ...]]) -> np.ndarray:
    rows = np.zeros((len(tasks), WIDEST), np.int64)
    with np.errstate(over="ignore"):
        for n, count in enumerate(tasks):
            rows[n, :count] = 1 + rows[list(after[n])].sum()
    return rows


def run(device: RiscvDevice, work: list[Work], times: int = 1) -> np.ndarray:
    """What is in memory when the work has run; its error is raised after that was read."""
    executable = device.load([compile_text(SUMS + TRAP)], ["test.o"])
    record = device.record(executable, work, 1, 64)
    memory = device.allocate(ROW * len(work))
    for _ in range(times):
        device.fill(memory, 0).wait()
        device.submit(record, [memory]).wait(120)
    return read(device, memory, len(work))


def read(device: RiscvDevice, memory: object, rows: int) -> np.ndarray:
    found = np.zeros((rows, WIDEST), np.int64)
    device.read(memory, found).wait()  # pyright: ignore[reportArgumentType]
    return found


@pytest.mark.parametrize(("seed", "count"), [(0, 1), (1, 63), (2, 64), (3, 65), (4, 200)])
def test_every_command_sees_all_of_what_it_waits_for(device: RiscvDevice, seed: int, count: int) -> None:
    tasks, after, seconds = program(seed, count)
    np.testing.assert_array_equal(run(device, work_of(tasks, after, seconds), 5), expected(tasks, after))


@pytest.mark.parametrize("seed", range(3))
def test_what_needs_nothing_of_a_fault_runs_to_its_end(device: RiscvDevice, seed: int) -> None:
    tasks, after, seconds = program(seed, 90)
    failing = 20 + 10 * seed
    needing = {failing}
    for number, waits in enumerate(after):
        if needing & set(waits):
            needing.add(number)
    work = work_of(tasks, after, seconds, failing)
    executable = device.load([compile_text(SUMS + TRAP)], ["test.o"])
    record, memory = device.record(executable, work, 1, 64), device.allocate(ROW * len(work))
    correct = expected(tasks, after)
    correct[sorted(needing)] = 0
    for _ in range(2):
        device.fill(memory, 0).wait()
        with pytest.raises(KernelFault, match="trap"):
            device.submit(record, [memory]).wait(120)
        np.testing.assert_array_equal(read(device, memory, len(work)), correct)


def test_a_core_does_one_thing_at_a_time_and_all_of_it_is_noted(device: RiscvDevice) -> None:
    tasks, after, seconds = program(7, 100)
    device.profile(True)
    run(device, work_of(tasks, after, seconds))
    events = [event for event in device.profile(False) if event.kind == "launch"]
    assert len(events) == len(tasks)
    for number, event in enumerate(events):
        assert bool(event.pieces) == bool(tasks[number])
        assert all(events[earlier].end <= event.begin + 1e-9 for earlier in after[number] if tasks[earlier])
    cores: dict[int, list[tuple[float, float]]] = {}
    for event in events:
        for piece in event.pieces:
            cores.setdefault(piece.core, []).append((piece.begin, piece.end))
    assert set(cores) <= set(range(device.options.harts))
    for pieces in cores.values():
        for before, behind in pairwise(sorted(pieces)):
            assert before[1] <= behind[0] + 1e-9


def test_the_longest_path_comes_first_and_nothing_before_what_it_waits_for() -> None:
    # 0 alone; 1 → 2 → 3, each as long as 0.
    work = [Work("launch", (), "k", 1, (), after, seconds=1e-3) for after in ((), (), (1,), (2,))]
    assert order_by_ranks(work, [1] * 4, 4) == [1, 2, 0, 3]
    tasks, after, seconds = program(9, 120)
    order = order_by_ranks(work_of(tasks, after, seconds), [max(1, t) for t in tasks], 4)
    places = {number: place for place, number in enumerate(order)}
    assert sorted(order) == list(range(120))
    assert all(places[earlier] < places[number] for number, waits in enumerate(after) for earlier in waits)
