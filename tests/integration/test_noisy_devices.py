"""Programs on devices that run late: the same results, nothing stuck, everything that touches the same bytes ordered;
and on devices that fail: what depends on the failure is poisoned, and nothing else."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from tests.integration.noise import Access, Entry, NoisyDevice, access_of, install, overlap, unordered, within
from tests.integration.placed import build_placed, expected, random_program
from tests.integration.placed_text import TextProgram
from tests.prepared import load_source
from tests.seeds import seeds

import motet.builder as b
from motet.artifact.reader import Artifact
from motet.artifact.schema import Plan, Schedule
from motet.builder import Graph, Tensor
from motet.compiler.verify.oracle import run_oracle
from motet.errors import CompileError, KernelFault, MotetError
from motet.runtime import Session, load
from motet.runtime.conformance import all_checks, run_checks

TARGETS = ("noisy-host:x86-64-v3", "noisy-null:x86-64-v3")
# Alternatives that some of the bindings take.
FLAGS = ("a=noisy-host,noisy-null", "b=noisy-null[1],noisy-host", "c=noisy-null[2]")
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def noisy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noisy devices as an installed distribution."""
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def bindings(seed: int, delay: float) -> dict[str, str]:
    """Devices for a, b and c: other ones, and other numbers of queues, from seed to seed."""
    late = f"delay={delay}&seed={seed}"
    return [
        {"a": f"noisy-host?{late}", "b": f"noisy-null/1?{late}1", "c": f"noisy-null/2?{late}2"},
        {"a": f"noisy-host?{late}", "b": f"noisy-null/1?{late}1&queues=4", "c": f"noisy-null/1?{late}1&queues=4"},
        {"a": f"noisy-null?{late}&queues=1", "b": f"noisy-null/1?{late}1&queues=3", "c": f"noisy-null/2?{late}2"},
        {"a": f"noisy-host?{late}", "b": f"noisy-host/1?{late}1&threads=2", "c": f"noisy-null/2?{late}2"},
    ][seed % 4]


def opened(session: Session) -> list[NoisyDevice]:
    bound = session._bound
    assert bound is not None
    devices = [each.device for each in bound.opened]
    assert all(isinstance(device, NoisyDevice) for device in devices)
    return devices  # pyright: ignore[reportReturnType]


def call(session: Session, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    results = within(PATIENCE, lambda: session(*inputs))
    return list(results) if isinstance(results, tuple) else [results]


# -- what a call asked of its devices ----------------------------------------------------------------


def logged(session: Session, inputs: Sequence[np.ndarray]) -> tuple[list[Entry], list[np.ndarray]]:
    """Everything that one call submits, in order, and its results."""
    devices = opened(session)
    for device in devices:
        device.keep_log(True)
    try:
        results = call(session, inputs)
    finally:
        for device in devices:
            device.keep_log(False)
    return entries_of(devices), results


def entries_of(devices: Sequence[NoisyDevice]) -> list[Entry]:
    return sorted((entry for device in devices for entry in device.log), key=lambda entry: entry.begin)


def schedule_of(artifact: Artifact, entry: Entry) -> tuple[str, Schedule]:
    """The region that was submitted, by the kernels that it launches."""
    for variant in artifact.manifest.variants:
        if variant.family == entry.device.info.family:
            for name, schedule in variant.schedules.items():
                if [command.kernel for command in schedule.commands] == [item.kernel for item in entry.work]:
                    return name, schedule
    raise AssertionError("no schedule has these kernels")


def accesses_of(artifact: Artifact, entries: Sequence[Entry]) -> list[Access]:
    found = []
    for entry in entries:
        reads = []
        if entry.kind == "submit":
            commands = schedule_of(artifact, entry)[1].commands
            reads = [1 if command.op == "copy" else command.reads for command in commands]
        found.append(access_of(entry, reads))
    return found


# -- late ----------------------------------------------------------------------------------------------


def verify_graph(seed: int, delay: float) -> None:
    program = random_program(seed)
    artifact = build_placed(program.graph, FLAGS, TARGETS)
    wanted = expected(program.graph, program.inputs)
    with load(artifact, devices=bindings(seed, delay), threads=2) as session:
        for _ in range(2):
            entries, results = logged(session, program.inputs)
            for result, value in zip(results, wanted, strict=True):
                np.testing.assert_allclose(result, value, rtol=2e-4, atol=2e-5, err_msg=f"seed {seed}")
            assert unordered(entries, accesses_of(artifact, entries)) == [], f"seed {seed}"


def verify_text(seed: int, delay: float) -> None:
    text = TextProgram(seed).text
    random = np.random.default_rng(seed)
    inputs = [*random.uniform(-2, 2, (3, 4)).astype(np.float32), np.array(seed % 2 == 1)]
    wanted = run_oracle(load_source(text, "oracle.mlir"), "f", inputs)
    try:
        artifact = build_placed(text, FLAGS, TARGETS)
    except CompileError as error:
        assert "its parts are placed on" in str(error)  # two devices in one branch or loop
        return
    with load(artifact, devices=bindings(seed, delay), threads=2) as session:
        entries, results = logged(session, inputs)
        for result, value in zip(results, wanted, strict=True):
            np.testing.assert_allclose(result, value, rtol=2e-4, atol=2e-5, err_msg=f"seed {seed}")
        assert unordered(entries, accesses_of(artifact, entries)) == [], f"seed {seed}"


@pytest.mark.parametrize("seed", seeds(16))
def test_late_devices_give_the_same_results(seed: int) -> None:
    verify_graph(seed, 2e-3)


@pytest.mark.parametrize("seed", seeds(12))
def test_late_devices_give_the_same_results_for_programs_in_text(seed: int) -> None:
    verify_text(seed, 2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 400, 50))
def test_late_devices_give_the_same_results_many_times(first: int) -> None:
    for seed in range(first, first + 50):
        verify_graph(seed, 3e-3)
        verify_text(seed, 3e-3)


@pytest.mark.slow
@pytest.mark.parametrize("uri", ["noisy-host?delay=5e-4", "noisy-null?delay=5e-4&queues=3"])
def test_late_devices_keep_to_the_contract(uri: str) -> None:
    chosen = [
        check.name for check in all_checks()
        if check.area in ("timelines", "commands", "threads") and check.name not in ("deep-queues", "many-wait")
    ]
    failed = [outcome for outcome in run_checks(uri, chosen) if outcome.verdict == "fail"]
    assert failed == []


def test_the_proof_of_order_fails_without_any_of_the_points_that_are_waited_for() -> None:
    found = total = 0
    for seed in (0, 4, 20, 22):
        program = random_program(seed)
        artifact = build_placed(program.graph, FLAGS, TARGETS)
        with load(artifact, devices=bindings(seed, 0.0), threads=2) as session:
            entries, _ = logged(session, program.inputs)
            accesses = accesses_of(artifact, entries)
            for number, entry in enumerate(entries):
                if entry.waits and entry.work:
                    total += 1
                    bare = replace(entry, waits=())
                    found += bool(unordered([*entries[:number], bare, *entries[number + 1 :]], accesses))
            assert unordered(entries, accesses) == []
    assert (found, total) == (total, found) and total > 8


# -- failing -------------------------------------------------------------------------------------------


@dataclass
class Chain:
    """A random program whose every value is a result, in which no two operations are one kernel."""

    graph: Graph
    inputs: list[np.ndarray]
    values: list[np.ndarray]  # what each result should be


def random_chain(seed: int) -> Chain:
    random = np.random.default_rng(seed)
    extent = int(random.choice([3, 17, 64, 1000]))
    graph = Graph(f"chain{seed}")
    inputs = [random.standard_normal(extent).astype(np.float32) for _ in range(2)]
    known: list[tuple[Tensor, np.ndarray]] = [
        (graph.input(f"x{number}", (extent,), "f32"), array) for number, array in enumerate(inputs)
    ]
    values: list[np.ndarray] = []
    for number in range(int(random.integers(4, 16))):
        (x, a), (y, c) = (known[int(random.integers(max(0, len(known) - 6), len(known)))] for _ in range(2))
        device = str(random.choice(["a", "b", "c"]))
        factor = 0.25 + number / 64
        bent = b.tanh(b.mul(y, factor, device=device), device=device)
        known.append((b.add(b.mul(x, factor, device=device), bent, device=device),
                      (a * np.float32(factor) + np.tanh(c * np.float32(factor))).astype(np.float32)))
        values.append(known[-1][1])
        graph.result(known[-1][0], f"r{number}")
    return Chain(graph, inputs, values)


def read_back(entry: Entry, place: int, dtype: str, count: int) -> np.ndarray:
    """What a buffer of a submission holds."""
    found = np.empty(count, dtype)
    entry.device.inner.read(entry.buffers[place], found).wait()
    return found


def poisoned(entries: Sequence[Entry], accesses: Sequence[Access], kernel: str) -> list[bool]:
    """Which entries cannot have run, by what they read, if `kernel` failed where it was first launched."""
    bad: list[tuple[int, int]] = []
    found: list[bool] = []
    failed = False
    for entry, access in zip(entries, accesses, strict=True):
        fails = not failed and any(item.kernel == kernel for item in entry.work)
        failed = failed or fails
        found.append(fails or overlap(access.reads, bad))
        if found[-1]:
            bad += access.writes
    return found


def reading(plan: Plan, step: int) -> set[int]:
    """The steps that read what `step` makes, directly or not, and itself."""
    found, values = {step}, set(plan.steps[step].results)
    for number, other in enumerate(plan.steps):
        if values & set(other.operands):
            found.add(number)
            values |= set(other.results)
    return found


def verify_poison(seed: int, delay: float) -> None:
    chain = random_chain(seed)
    artifact = build_placed(chain.graph, FLAGS, TARGETS)
    signature, plan = artifact.manifest.functions[0], artifact.manifest.plans[f"chain{seed}"]
    random = np.random.default_rng(seed)
    with load(artifact, devices=bindings(seed, delay), threads=2) as session:
        devices = opened(session)
        entries, results = logged(session, chain.inputs)
        for result, value in zip(results, chain.values, strict=True):
            np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)
        launched = [item.kernel for entry in entries for item in entry.work if item.kernel]
        kernel = launched[int(random.integers(len(launched)))]
        owner = next(entry for entry in entries if any(item.kernel == kernel for item in entry.work)).device
        del entries, results
        used = in_use(devices)

        owner.fail(kernel)
        for device in devices:
            device.keep_log(True)
        with pytest.raises(KernelFault, match=f"kernel {kernel}: as the test asks for") as raised:
            call(session, chain.inputs)
        assert raised.value.device == owner.info.uri
        for device in devices:
            device.keep_log(False)
        entries = entries_of(devices)
        check_poison(artifact, plan, entries, kernel, raised.value)
        check_values(artifact, plan, entries, chain)

        del entries, raised
        for device in devices:
            device.log.clear()
        gc.collect()
        assert in_use(devices) == used, f"seed {seed}"
        for result, value in zip(call(session, chain.inputs), chain.values, strict=True):
            np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)
    assert len(signature.results) == len(chain.values)


def in_use(devices: Sequence[NoisyDevice]) -> list[int]:
    """Bytes of each null device that are taken; of host devices, of their pools."""
    for device in devices:
        device.log.clear()
    gc.collect()
    return [
        device.inner.bytes_used if device.inner.info.family == "null" else device.inner._pool.statistics.in_use
        for device in devices
    ]


def check_poison(
    artifact: Artifact, plan: Plan, entries: Sequence[Entry], kernel: str, fault: KernelFault
) -> None:
    """Exactly what needs the failed kernel's results has its error: by the bytes, and by the steps of the plan."""
    wanted = poisoned(entries, accesses_of(artifact, entries), kernel)
    for entry, bad in zip(entries, wanted, strict=True):
        assert entry.point is not None and entry.point.reached
        assert _same(entry.point.error, fault if bad else None), (entry.kind, entry.device.info.uri)
    runs = {step.region: number for number, step in enumerate(plan.steps) if step.op == "run"}
    assert len(runs) == sum(step.op == "run" for step in plan.steps)
    submitted = {runs[schedule_of(artifact, entry)[0]]: entry for entry in entries if entry.kind == "submit"}
    first = next(n for n, entry in submitted.items() if any(item.kernel == kernel for item in entry.work))
    assert {n for n, entry in submitted.items() if entry.point and entry.point.error} == reading(plan, first) & {
        *submitted
    }
    assert set(submitted) == set(runs.values())


def _same(error: MotetError | None, other: MotetError | None) -> bool:
    if error is None or other is None:
        return error is other
    return type(error) is type(other) and vars(error) == vars(other)


def check_values(artifact: Artifact, plan: Plan, entries: Sequence[Entry], chain: Chain) -> None:
    """What was not poisoned holds what it should."""
    steps = {step.region: step for step in plan.steps}
    for entry in entries:
        if entry.kind != "submit" or entry.point is None or entry.point.error is not None:
            continue
        name, _ = schedule_of(artifact, entry)
        region, step = artifact.manifest.regions[name], steps[name]
        for place, number in enumerate(step.results):
            if number in plan.results:
                value = chain.values[plan.results.index(number)]
                found = read_back(entry, len(region.inputs) + place, "f4", len(value))
                np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", seeds(24))
def test_a_failing_kernel_poisons_what_depends_on_it_and_nothing_else(seed: int) -> None:
    verify_poison(seed, 1e-3)


@pytest.mark.slow
def test_failing_kernels_poison_what_depends_on_them_many_times() -> None:
    for seed in range(100, 500):
        verify_poison(seed, 1e-3)
