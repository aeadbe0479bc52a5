"""Chooses the fastest of several schedules of a function by measurement: `--option tune-schedule=measure`.

    built, candidates → one artifact in which every candidate is a separate function, so that all share code and
    constants → a session on the device → all of them called alternately → the fastest, and the measurements

A region of a program over several devices is measured separately on its device, with its inputs on that device:
concurrent work of other devices is not measured. Every family with code needs a device here; a CPU level that this
machine does not support keeps the planned schedules, with a warning.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from motet.artifact.contracts import seal
from motet.artifact.schema import Manifest, Schedule, Signature, Trial, Variant
from motet.artifact.states import stateless
from motet.artifact.writer import write_artifact
from motet.compiler.kernels.checked import check_wanted
from motet.compiler.pipeline import Built, Progress
from motet.compiler.scheduling.checker import check_manifest
from motet.compiler.tuning.inputs import Given, Symbols, random_inputs, region_symbols
from motet.errors import DeviceError
from motet.runtime.device import DeviceInfo, probe
from motet.runtime.selection import HOST, bind, needed_families, processor_or_nothing, regions_of
from motet.runtime.session import Session, load

OPTION = "tune-schedule"

GAIN = 0.02  # fraction of the planned schedule's time that another one must save, and
MEMORY_GAIN = 0.05  # the same for one that takes more memory
_WARM = 3  # calls before measuring, in which a session prepares its fast path
_SAMPLE = 1e-3  # minimum seconds of a sample, which has as many calls as that takes
_MOST_CALLS = 1000
_BUDGET = 0.6  # seconds for all samples of a function on a target
_ROUNDS = (5, 40)

_log = logging.getLogger("motet")


@dataclass(frozen=True)
class Times:
    """The seconds of the fastest and the median call."""

    fastest: float
    median: float


def tune_schedules(built: Built, given: Given, folder: Path, progress: Progress) -> Built:
    """`built` with the candidate schedules that are fastest on this machine's devices.

    `given` are the extents for measuring functions with dynamic ones; `folder` is for a temporary file. Raises:
    DeviceError if a family with code has no device here; OptionError if `given` is missing or unsuitable.
    """
    manifest = built.manifest
    symbols = region_symbols(manifest, given)
    devices = _devices(manifest)
    variants: list[Variant] = []
    refused: dict[str, list[str]] = {}
    for number, variant in enumerate(manifest.variants):
        candidates = {name: each for name, each in built.candidates.get(variant.target, {}).items() if len(each) > 1}
        share = number / len(manifest.variants), 1 / len(manifest.variants)
        trial = _Trial(built, variant, candidates, symbols, devices, folder, _part(progress, *share))
        try:
            variants.append(trial.run())
        except _Refused as reason:
            refused.setdefault(variant.family, []).append(f"{variant.target}: {reason}")
            variants.append(variant)
    for family, reasons in refused.items():
        if len(reasons) == sum(variant.family == family for variant in manifest.variants):
            raise DeviceError(f"option {OPTION}=measure: no device of {family} runs any of the code: "
                              f"{'; '.join(reasons)}; compile for what is here, with --device, or without the option")
        _log.warning("schedules were not measured, and are as planned: %s", "; ".join(reasons))
    chosen = structs.replace(manifest, variants=variants)
    seal(chosen, built.members)
    return Built(chosen, built.members, built.parameters)


class _Refused(Exception):
    """This machine's device cannot run a variant."""


def _devices(manifest: Manifest) -> Callable[[str, str], DeviceInfo]:
    """The device of a family on which a function, or a region, is measured."""
    if not manifest.plans:
        return lambda name, family: _first(family, probe(family), name)
    present = [info for family in needed_families(manifest.devices, manifest.variants, {}) for info in probe(family)]
    regions = regions_of(manifest)
    choices = bind(manifest.devices, manifest.variants, {}, present, f"option {OPTION}=measure", regions=regions)

    def find(name: str, family: str) -> DeviceInfo:
        own = [
            info for choice in choices if name in regions[choice.device.name]
            for info in (choice.info, *(candidate.info for candidate in choice.further))
        ]
        return _first(family, [*own, *present], name)

    return find


def _first(family: str, infos: Sequence[DeviceInfo], name: str) -> DeviceInfo:
    found = next((info for info in infos if info.family == family and info.available), None)
    if found is None:
        absent = next((info.reason for info in infos if info.family == family and info.reason), "")
        why = f" ({absent})" if absent else ""
        raise DeviceError(f"option {OPTION}=measure: no device of {family} is here{why}, on which schedules of {name} "
                          f"could be measured; compile where one is, for other devices with --device, or without the "
                          f"option")
    return found


def _part(progress: Progress, begin: float, size: float) -> Progress:
    return lambda what, fraction: progress(what, 0.9 + 0.05 * (begin + size * fraction))


@dataclass(frozen=True)
class _Trial:
    """Measures the schedules of one variant."""

    built: Built
    variant: Variant
    candidates: Mapping[str, Mapping[str, Schedule]]
    symbols: Mapping[str, Symbols]
    devices: Callable[[str, str], DeviceInfo]
    folder: Path
    progress: Progress

    def run(self) -> Variant:
        """The variant with the fastest schedules."""
        chosen = dict(self.variant.schedules)
        by_device: dict[str, list[str]] = {}
        for name in self.candidates:
            info = self.devices(name, self.variant.family)
            obstacle = processor_or_nothing(info, self.variant)
            if obstacle is not None:
                raise _Refused(obstacle)
            by_device.setdefault(info.uri, []).append(name)
        done = 0
        for uri, names in by_device.items():
            manifest = self._manifest(names)
            if check_wanted():
                check_manifest(manifest)
            path = self.folder / "trial.motet"
            members = dict(self.built.members)
            seal(manifest, members)
            write_artifact(manifest, members, self.built.parameters, path)
            try:
                session = load(path, devices=uri)
            except DeviceError as error:
                raise _Refused(str(error).removeprefix(f"{path}: ")) from None
            with session:
                for name in names:
                    self.progress(f"measure {name} for {self.variant.target}", done / len(self.candidates))
                    chosen[name] = self._choose(session, name, uri)
                    done += 1
            path.unlink()
        return structs.replace(self.variant, schedules=chosen)

    def _manifest(self, names: Sequence[str]) -> Manifest:
        """A manifest with a function for each candidate, and no devices."""
        manifest = self.built.manifest
        signatures = {signature.name: signature for signature in (*manifest.functions, *manifest.regions.values())}
        functions: list[Signature] = []
        schedules: dict[str, Schedule] = {}
        for name in names:
            for number, schedule in enumerate(self.candidates[name].values()):
                functions.append(structs.replace(stateless(signatures[name]), name=_trial_name(name, number)))
                schedules[_trial_name(name, number)] = schedule
        variant = structs.replace(self.variant, schedules=schedules)
        return structs.replace(
            manifest, functions=functions, variants=[variant], devices=[], default_device=0, links=[], plans={},
            regions={},
        )

    def _choose(self, session: Session, name: str, uri: str) -> Schedule:
        candidates = self.candidates[name]
        calls = [
            _call(session, _trial_name(name, number), self.symbols[name]) for number in range(len(candidates))
        ]
        times = measure(calls, _has_destinations(session[_trial_name(name, 0)].signature))
        number = fastest(times, [schedule.arena for schedule in candidates.values()])
        trials = [
            Trial(label, _rounded(each.fastest), _rounded(each.median), schedule.arena, index == number)
            for index, ((label, schedule), each) in enumerate(zip(candidates.items(), times, strict=True))
        ]
        on = f"{uri}, {session.threads} threads" if uri == HOST else uri
        return structs.replace([*candidates.values()][number], trials=trials, tried_on=on)


def _trial_name(name: str, number: int) -> str:
    return f"{name}#{number}"


def _has_destinations(signature: Signature) -> bool:
    return any(spec.destination is not None for spec in signature.results)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.3e}")


def _call(session: Session, name: str, symbols: Symbols) -> Iterator[Callable[[], Any]]:
    """Calls of a function on inputs on its device; each `next` yields one with fresh inputs."""
    function = session[name]
    signature = function.signature
    fresh = random_inputs(signature, symbols)
    resident = not any(variant.family == HOST for variant in session.variants)
    arrays: list[Any] = [session.put(array) for array in fresh] if resident else [array.copy() for array in fresh]
    out: Any = None
    if resident:
        function(*arrays)
        out = _places(session, function(*arrays), signature)
    while True:
        for array, value in zip(arrays, fresh, strict=True):
            if resident:
                array.write(value)
            else:
                array[...] = value
        yield (lambda: function(*arrays, out=out)) if out is not None else (lambda: function(*arrays))


def _places(session: Session, results: Any, signature: Signature) -> tuple[Any, ...]:
    """Memory on the device for results like `results`; None for those written to an input."""
    values = results if isinstance(results, tuple) else () if results is None else (results,)
    return tuple(
        None if spec.destination is not None else session.empty(value.shape, spec.dtype)
        for value, spec in zip(values, signature.results, strict=True)
    )


# -- measuring -----------------------------------------------------------------------------------


def measure(
    calls: Sequence[Iterator[Callable[[], Any]]], anew: bool = False, clock: Callable[[], float] = time.perf_counter
) -> list[Times]:
    """The times of `calls`, run alternately; each round starts with another one. Each is an iterator over functions to
    call, whose inputs are prepared; `anew` requests a new one for every call."""
    once = [max([_sample(next(call), 1, clock) for _ in range(_WARM)][-1], 1e-9) for call in calls]
    counts = [1 if anew else max(1, min(_MOST_CALLS, round(_SAMPLE / seconds))) for seconds in once]
    round_seconds = sum(count * seconds for count, seconds in zip(counts, once, strict=True))
    low, high = _ROUNDS
    samples: list[list[float]] = [[] for _ in calls]
    for round_number in range(max(low, min(high, round(_BUDGET / round_seconds)))):
        for place in range(len(calls)):
            number = (place + round_number) % len(calls)
            samples[number].append(_sample(next(calls[number]), counts[number], clock))
    return [Times(min(taken), statistics.median(taken)) for taken in samples]


def _sample(call: Callable[[], Any], count: int, clock: Callable[[], float]) -> float:
    begin = clock()
    for _ in range(count):
        call()
    return (clock() - begin) / count


def fastest(times: Sequence[Times], arenas: Sequence[object]) -> int:
    """The index of the chosen candidate. The first, planned one is kept unless another is faster by more than the
    noise, in both its fastest and its median call; one with a larger arena must be faster by more."""
    planned = times[0]
    best, found = planned.fastest, 0
    for number, (each, arena) in enumerate(zip(times, arenas, strict=True)):
        larger = isinstance(arena, int) and isinstance(arenas[0], int) and arena > arenas[0]
        wanted = 1 - (MEMORY_GAIN if larger else GAIN)
        if each.fastest < best and each.fastest < wanted * planned.fastest and each.median < planned.median:
            best, found = each.fastest, number
    return found
