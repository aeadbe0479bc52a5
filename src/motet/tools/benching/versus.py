"""Two programs compared by alternating samples, so that disturbances of the machine affect both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from motet.errors import CallError
from motet.measuring.latency import Caller, Latency, Sample, latency_of
from motet.measuring.ratios import Ratio, ratio_of

if TYPE_CHECKING:
    from motet.artifact.schema import Signature
    from motet.runtime.session import Session
    from motet.specs import Array
    from motet.tools.placements import Repetition
    from motet.tools.profile import KernelTime

_DRAW = 0.01  # smaller differences are no difference, however certain they are


@dataclass(frozen=True)
class Contender:
    """One of the programs."""

    file: str
    function: str
    target: str
    number: int
    latency: Latency
    kernels: list[KernelTime]


@dataclass(frozen=True)
class Versus:
    """`ratio` is the time of the first program relative to the second, the median over rounds of one sample of each;
    with a probability of 95 % it is between `low` and `high` (None for fewer than six rounds). `faster` is 0 or 1, or
    None if the difference is noise. `largest_difference` is that of the results; `agree` says whether it is within the
    tolerance of their types, and is None if shapes or types differ."""

    contenders: list[Contender]
    ratio: float
    low: float | None
    high: float | None
    faster: int | None
    agree: bool | None
    largest_difference: float | None


def check_same_inputs(signatures: Sequence[Signature], files: Sequence[str]) -> None:
    """Raises CallError for functions whose inputs differ."""
    from motet.tools.show import show_signature, show_tensor

    first, second = ([show_tensor(spec) for spec in each.inputs] for each in signatures)
    if first != second and not _same_ranks(*signatures):
        raise CallError(f"{files[1]}: {show_signature(signatures[1])} has other inputs than {files[0]}: "
                        f"{show_signature(signatures[0])}; expected two programs for the same inputs")


def _same_ranks(first: Signature, second: Signature) -> bool:
    """Whether inputs differ in names or in which extents are dynamic alone."""
    def fits(a: object, b: object) -> bool:
        return a == b or not (isinstance(a, int) and isinstance(b, int))

    return len(first.inputs) == len(second.inputs) and all(
        a.dtype == b.dtype and len(a.shape) == len(b.shape) and all(map(fits, a.shape, b.shape))
        for a, b in zip(first.inputs, second.inputs, strict=True)
    )


def measure_versus(
    programs: Sequence[tuple[str, Session, str]], arrays: Sequence[Array], repetition: Repetition, profile: bool,
    progress: Callable[[str, float], None],
) -> Versus:
    """Measures two functions, given as a file, its session and a name, on the same arrays: as many samples of each as
    `repetition` has rounds, in alternating order."""
    from motet.tools.profile import profile_kernels

    rounds = repetition.rounds
    callers = [Caller(session, name, [array.copy() for array in arrays]) for _, session, name in programs]
    for caller in callers:
        caller.begin_anew()
    agree, largest = _compare(*(caller.session[caller.name](*caller.arrays) for caller in callers))
    for caller in callers:
        caller.prepare(repetition.number, repetition.min_time / rounds / 2)
    samples: list[list[Sample]] = [[], []]
    for round_ in range(rounds):
        progress(f"round {round_ + 1} of {rounds}", round_ / rounds)
        for index in (0, 1) if round_ % 2 == 0 else (1, 0):
            samples[index].append(callers[index].sample())
    kernels = [
        profile_kernels(caller.session[caller.name], caller.arrays, caller.session.variants, caller.begin_anew).kernels
        if profile else [] for caller in callers
    ]
    contenders = [
        Contender(file, caller.name, ", ".join(variant.target for variant in caller.session.variants), caller.number,
                  latency_of(own, caller.group), times)
        for (file, _, _), caller, own, times in zip(programs, callers, samples, kernels, strict=True)
    ]
    ratio = ratio_of((a.median, b.median) for a, b in zip(*samples, strict=True))
    return Versus(contenders, ratio.median, ratio.low, ratio.high, _faster(ratio), agree, largest)


def _faster(ratio: Ratio) -> int | None:
    return None if ratio.is_noise or abs(ratio.median - 1) < _DRAW else int(ratio.median > 1)


def _compare(first: object, second: object) -> tuple[bool | None, float | None]:
    """Whether the results agree, and their largest difference."""
    from motet.runtime.tensors import as_list
    from motet.specs import compare, type_name

    pairs = as_list(first), as_list(second)
    if [type_name(each) for each in pairs[0]] != [type_name(each) for each in pairs[1]]:
        return None, None
    found = [compare(b, a) for a, b in zip(*pairs, strict=True)]
    return all(each.first is None for each in found), max((each.largest for each in found), default=0.0)


def versus_lines(result: Versus, profile: bool) -> list[str]:
    """The comparison as text."""
    from motet.tools.show import show_seconds, show_table

    rows = [
        [letter, each.file, each.target, show_seconds(each.latency.p50), show_seconds(each.latency.p90),
         show_seconds(each.latency.p99), show_seconds(each.latency.min), str(each.latency.calls)]
        for letter, each in zip("AB", result.contenders, strict=True)
    ]
    lines = show_table(["", "program", "code", "p50", "p90", "p99", "min", "calls"], rows)
    span = Ratio(result.ratio, result.low, result.high).span
    if result.faster is None:
        why = "" if result.low is not None else "; fewer than six rounds (--repeat) say nothing of noise"
        lines.append(f"no difference beyond noise: A takes {result.ratio:.3f} × the time of B{span}{why}")
    else:
        winner, loser = ("B", "A") if result.faster else ("A", "B")
        lines.append(f"{winner} is faster: A takes {result.ratio:.3f} × the time of B{span}; "
                     f"{winner} is {max(result.ratio, 1 / result.ratio):.2f} × as fast as {loser}")
    if result.agree is None:
        lines.append("results have other shapes or types")
    else:
        lines.append(f"results {'agree' if result.agree else 'DIFFER'}; "
                     f"largest difference {result.largest_difference:.3g}")
    return lines + (["", *_kernel_lines(result)] if profile else [])


def _kernel_lines(result: Versus) -> list[str]:
    """The kernels of both programs by what they compute, those with the largest difference first."""
    from motet.tools.show import show_names, show_table

    times: list[dict[str, float]] = [{}, {}]
    for own, each in zip(times, result.contenders, strict=True):
        for kernel in each.kernels:
            key = kernel.source or kernel.name
            own[key] = own.get(key, 0.0) + kernel.seconds
    names = sorted({*times[0], *times[1]}, key=lambda key: -abs(times[0].get(key, 0.0) - times[1].get(key, 0.0)))
    rows = [
        [*(f"{own[key] * 1e6:,.1f}" if key in own else "-" for own in times),
         f"{times[0][key] / times[1][key]:.2f}" if times[0].get(key) and times[1].get(key) else "-", show_names(key)]
        for key in names
    ]
    return show_table(["A µs", "B µs", "A ÷ B", "computes"], rows, indent="  ")
