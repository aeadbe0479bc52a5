"""Chooses forms of kernels by measurement on an open device, for `motet tune` and `--option tune=measure`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec import structs

from motet.artifact.candidates import Chosen, Tunable, read_index
from motet.artifact.reader import Artifact
from motet.artifact.schema import Variant
from motet.artifact.tunings import Tuning
from motet.errors import DeviceError
from motet.runtime.device import Device
from motet.runtime.trials import LibraryTrial, find_launch, time_candidates

_GAIN = 0.01  # by which a candidate must be faster than the first, the compiler's choice
_LIBRARY_GAIN = 0.02  # by which a library must be faster than the generated kernel, which has no requirements

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Verdict:
    """The result for one kernel: `taken` is the number of the fastest candidate, `seconds` are the times of all, None
    for one that does not run; `algorithms` are those of the device's library, fastest first. `skipped` tells why the
    kernel was not measured."""

    kernel: Tunable
    taken: int
    seconds: tuple[float | None, ...]
    device: str
    skipped: str = ""
    algorithms: tuple[LibraryTrial, ...] = ()

    @property
    def library(self) -> LibraryTrial | None:
        """The library's fastest algorithm if it is faster than every candidate."""
        best = self.seconds[self.taken] if self.seconds else None
        if not self.algorithms or best is None or self.algorithms[0].seconds * (1 + _LIBRARY_GAIN) > best:
            return None
        return self.algorithms[0]

    @property
    def chosen(self) -> Chosen:
        """The part of the kernel that the artifact keeps."""
        call, library = self.kernel.library, self.library
        if call is None or library is None:
            return Chosen(self.taken)
        return Chosen(self.taken, structs.replace(call, algorithm=library.algorithm))

    @property
    def tuning(self) -> Tuning:
        """The entry for a file of tunings."""
        kernel = self.kernel
        times = {
            candidate.label: round(seconds * 1e6, 2)
            for candidate, seconds in zip(kernel.candidates, self.seconds, strict=True) if seconds is not None
        }
        times |= {each.name: round(each.seconds * 1e6, 2) for each in reversed(self.algorithms)}
        return Tuning(
            kernel.key, f"{kernel.family}:{kernel.target}", self.device, kernel.candidates[self.taken].label,
            kernel.about, times, self.library.algorithm if self.library is not None else None,
        )


def tunable_variant(artifact: Artifact, device: Device) -> Variant:
    """The variant that a device runs. Raises DeviceError."""
    reasons: list[str] = []
    for variant in artifact.manifest.variants:
        if variant.family != device.info.family:
            continue
        reason = device.obstacle(variant)
        if reason is None:
            return variant
        reasons.append(f"{variant.target}: {reason}")
    listing = "; ".join(reasons) or f"it has none for {device.info.family} devices"
    raise DeviceError(f"device {device.info.uri}: runs none of the code of {artifact.name}: {listing}")


def tune_kernels(
    artifact: Artifact, device: Device, symbols: Mapping[str, Mapping[str, int]], progress: Progress,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Verdict]:
    """Measure every kernel of `artifact` with several forms for `device`. `symbols` are the values of the dynamic
    extents of functions and regions; kernels of functions that are not listed are skipped. Raises DeviceError."""
    variant = tunable_variant(artifact, device)
    kernels = [
        each for each in read_index(artifact) if (each.family, each.target) == (variant.family, variant.target)
    ]
    verdicts: list[Verdict] = []
    for number, kernel in enumerate(kernels):
        progress(f"measure {kernel.kernel} for {variant.target}", number / len(kernels))
        verdicts.append(_judge(artifact, device, variant, kernel, symbols, clock))
    return verdicts


def _judge(
    artifact: Artifact, device: Device, variant: Variant, kernel: Tunable, symbols: Mapping[str, Mapping[str, int]],
    clock: Callable[[], float],
) -> Verdict:
    name = device.info.name
    launch = find_launch(artifact, variant, kernel.kernel, symbols)
    if launch is None:
        untimed = (None,) * len(kernel.candidates)
        return Verdict(kernel, 0, untimed, name, "its function has dynamic extents, and no values are given for them")
    objects = sum(member in variant.objects for member in kernel.candidates[0].members)
    found = time_candidates(device, artifact, kernel, launch, objects, clock)
    seconds = tuple(found.candidates)
    return Verdict(kernel, fastest(seconds), seconds, name, algorithms=tuple(found.algorithms))


def fastest(seconds: tuple[float | None, ...]) -> int:
    """The number of the chosen candidate: the first, unless another one is faster by more than the measurement's
    noise."""
    there = [(each, number) for number, each in enumerate(seconds) if each is not None]
    if not there:
        return 0
    best, number = min(there)
    first = seconds[0]
    return 0 if first is not None and first <= best * (1 + _GAIN) else number
