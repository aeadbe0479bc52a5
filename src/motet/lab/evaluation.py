"""Evaluates a schedule of a kernel: its times, counters, distance from the device's limits, and correctness.

    subject, schedule → legality → an artifact → in another process: results, samples, counters
                      → results compared with the oracle's, figures with the limits → an `Evaluation`
"""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from motet.artifact.kernel_schedules import schedules_of
from motet.compiler import service
from motet.compiler.kernels.kernel_facts import dtype_of, extents_of, form_of
from motet.compiler.kernels.schedule import KernelSchedule, encode_schedule
from motet.errors import MotetError, OptionError, WrongResults
from motet.lab.counters import callgrind, energy, gpu_resources, perf_events
from motet.lab.limits import MARGIN, DeviceLimits, limits_of
from motet.lab.measuring import MeasuredFunction, MeasurePlan, Measurer, Samples, measuring, seconds_of
from motet.lab.subject import KernelSubject, compile_with, device_info, expect_legal, open_program, subject_of
from motet.measuring.ratios import Ratio, ratio_of
from motet.records.machine import fingerprint
from motet.records.record import Record

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact

COUNTERS = (*perf_events.NAMES, energy.NAME, callgrind.NAME, *gpu_resources.NAMES)

_ROUNDS = 9  # samples of each of two schedules that are compared


@dataclass(frozen=True)
class Evaluation:
    """The figures of a schedule: all samples, in seconds per call, and counts per call or why there are none.
    `validated` says what was compared with the oracle. `limit` is the least time on this device, in seconds; the shares
    are of its measured rates, None if a rate is unknown."""

    record: Record
    samples: tuple[float, ...]
    number: int
    threads: int
    counters: dict[str, float | str] = field(default_factory=dict[str, "float | str"])
    validated: tuple[str, ...] = ()
    limit: float = 0.0
    of_peak: float | None = None
    of_bandwidth: float | None = None

    @property
    def seconds(self) -> float:
        """The fastest sample."""
        return seconds_of(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


# The parameters are the options of an evaluation, as in the command.
def evaluate(
    kernel: KernelSubject | str, schedule: KernelSchedule | None = None, device: str = "host", *, repeat: int = 5,
    number: int | None = None, min_repeat_ms: float = 10.0, warmup: int = 1, counters: Sequence[str] = (),
    validate: bool = True, cold: bool = False, threads: int | None = None, measurer: Measurer | None = None,
) -> Evaluation:
    """Evaluate `schedule`, by default the compiler's choice, of `kernel`: a subject, an operator's specification or a
    program file, whose kernel with the most work is taken.

    A sample is the mean of `number` calls, by default as many as last `min_repeat_ms`. `counters` are those of
    `COUNTERS`. `validate` compares the results on fresh inputs with the oracle's. `cold` clears the caches before each
    call. Raises OptionError for an illegal schedule or an unknown counter, WrongResults, and MotetError for figures
    beyond the limits of the device.
    """
    subject = subject_of(open_program(kernel, device)) if isinstance(kernel, str) else kernel
    expect_counters(counters)
    if repeat < 1 or (number is not None and number < 1):
        raise OptionError(f"repeat={repeat}, number={number}: expected at least 1")
    taken = subject.chosen if schedule is None else schedule
    expect_legal(subject, taken)
    artifact = compile_with(subject, taken)
    seed = secrets.randbelow(1 << 20)
    plan = MeasurePlan(repeat, number, min_repeat_ms, warmup, tuple(counters), cold, threads, seed)
    with measuring(measurer) as process:
        samples = process.measure(bytes(artifact.data), what(subject, artifact), plan)
    lines = validated(subject, artifact, samples) if validate else ()
    found = assessed(subject, taken, samples, artifact)
    extra = callgrind.counts(subject, taken, counters) | gpu_resources.counts(artifact, subject, counters)
    record = replace_record(found.record, validated=bool(lines), counters=found.counters | extra)
    return replace(found, record=record, counters=found.counters | extra, validated=lines)


def compared(
    measurer: Measurer, subject: KernelSubject, schedules: tuple[KernelSchedule, KernelSchedule], plan: MeasurePlan
) -> Ratio | None:
    """The time of the first schedule relative to that of the second, by alternating samples. None if one fails."""
    plan = replace(plan, repeat=1)
    pairs: list[tuple[float, float]] = []
    try:
        artifacts = [compile_with(subject, schedule) for schedule in schedules]
        for _ in range(_ROUNDS):
            one, other = (
                measurer.measure(bytes(artifact.data), what(subject, artifact), plan) for artifact in artifacts
            )
            pairs.append((seconds_of(one.seconds), seconds_of(other.seconds)))
    except MotetError:
        return None
    return ratio_of(pairs)


def expect_counters(counters: Sequence[str]) -> None:
    """Raises OptionError for an unknown counter."""
    for name in counters:
        if name not in COUNTERS:
            raise OptionError(f"counter {name}: unknown; expected some of {', '.join(COUNTERS)}")


def what(subject: KernelSubject, artifact: Artifact) -> MeasuredFunction:
    """The function to call: the one that calls the kernel; the kernel alone is timed unless it is the whole program on
    the host."""
    names = [each.name for each in artifact.callable_functions]
    function = next((name for name in names if subject.listed.name.startswith(f"{name}_kernel_")), names[0])
    same = [name for each in schedules_of(artifact) if each.kernel == subject.listed.key for name in each.names]
    named = subject.listed.name if subject.listed.name in same or not same else same[0]
    timed = "" if subject.alone and subject.on_host else named
    return MeasuredFunction(subject.program.device, function, timed)


def validated(subject: KernelSubject, artifact: Artifact, samples: Samples) -> tuple[str, ...]:
    """Compare the results of `samples` with the oracle's; a line for each. Raises WrongResults if they differ."""
    function = what(subject, artifact).function
    report = service.verify(subject.program.request, function, samples.inputs, samples.results)
    if not report.ok:
        raise WrongResults(f"kernel {subject.listed.name}: wrong results: {'; '.join(report.lines)}")
    return tuple(report.lines)


def assessed(subject: KernelSubject, schedule: KernelSchedule, samples: Samples, artifact: Artifact) -> Evaluation:
    """The samples with the limits of the device. Raises MotetError for figures beyond them."""
    info = device_info(subject.program)
    record = replace_record(
        record_of(subject, schedule, fingerprint(info)), seconds=seconds_of(samples.seconds),
        samples=samples.seconds, counters=samples.counters, code_size=code_size(artifact), threads=samples.threads,
    )
    found = Evaluation(record, tuple(samples.seconds), samples.number, samples.threads, samples.counters)
    if not found.seconds:
        raise MotetError(f"kernel {subject.listed.name}: device {subject.program.device} tells no time for it")
    limits = expect_possible(subject, found.seconds, samples.threads)
    rate = limits.rate(record.dtype)
    if not limits.strict and found.seconds * MARGIN < limits.seconds(record.flops, record.bytes, record.dtype):
        return found  # faster than rates that are no limits: shares of them say nothing
    return replace(
        found, limit=limits.seconds(record.flops, record.bytes, record.dtype),
        of_peak=record.flops / found.seconds / rate if record.flops else None,
        of_bandwidth=record.bytes / found.seconds / limits.bandwidth if record.bytes else None,
    )


def expect_possible(subject: KernelSubject, seconds: float, threads: int) -> DeviceLimits:
    """The limits of the device. Raises MotetError if a kernel cannot take so few seconds, also by limits that are
    measured again."""
    info, dtype = device_info(subject.program), dtype_of(subject.kernel)
    limits = limits_of(info, threads)
    for again in (False, True):
        limits = limits_of(info, threads, again=True) if again else limits
        least = subject.listed.flops / limits.rate(dtype) / MARGIN
        if seconds >= least or not limits.is_strict(dtype):
            return limits
    raise MotetError(f"kernel {subject.listed.name}: {seconds * 1e6:.3g} µs is less than the {least * 1e6:.3g} µs that "
                     f"{subject.listed.flops:,} operations take at the peak; the figure is wrong")


def record_of(subject: KernelSubject, schedule: KernelSchedule, machine: str) -> Record:
    """A record of `schedule` without figures."""
    listed = subject.listed
    return Record(
        listed.key, listed.target, machine, encode_schedule(schedule), subject=subject.program.text, name=listed.name,
        about=listed.about, form=form_of(subject.kernel), extents=extents_of(subject.kernel),
        dtype=dtype_of(subject.kernel), flops=listed.flops, bytes=listed.bytes, when=round(time.time(), 1),
    )


def wrong_record(subject: KernelSubject, schedule: KernelSchedule, error: WrongResults) -> Record:
    """The record of a schedule whose results are wrong."""
    machine = fingerprint(device_info(subject.program))
    return replace_record(record_of(subject, schedule, machine), wrong=True, error=str(error))


def replace_record(record: Record, **changes: object) -> Record:
    """`record` with other fields."""
    import msgspec

    return msgspec.structs.replace(record, **changes)


def code_size(artifact: Artifact) -> int:
    """The bytes of an artifact's objects."""
    objects = {name for variant in artifact.manifest.variants for name in variant.objects}
    return sum(artifact.manifest.members[name].size for name in objects)
