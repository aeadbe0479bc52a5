"""Binds each device of a program for the report: to the device of a trace, else of this machine, else the preferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.artifact.schema import Alternative, LogicalDevice, Manifest, Variant
from motet.artifact.uri import family_of, split_uri
from motet.compiler.targets.rates import Rates, RateTable
from motet.errors import DeviceError, OptionError
from motet.runtime.device import DeviceInfo, probe
from motet.runtime.selection import HOST, bind, needed_families, regions_of

_CLASSES = {
    "contraction": "contraction", "convolution": "convolution", "depthwise": "convolution", "planes": "convolution",
    "interleave": "elementwise", "loops": "elementwise", "rows": "reduction", "generic": "generic",
    "products": "contraction",
}


@dataclass(frozen=True)
class ReportedDevice:
    """A device of the program, its physical device, and the target of the code there. `note` says why it is not another
    one, or that it is absent; `name` is empty if the program names no devices."""

    name: str
    uri: str
    family: str
    variant: Variant
    rates: Rates
    description: str = ""
    threads: int = 1
    note: str = ""
    peak: float = 0.0  # operations on 32-bit floats per second; by default those of the fastest class of kernels
    is_measured: bool = True  # whether peak and bandwidth were measured, and not assumed for the family

    def __post_init__(self) -> None:
        if not self.peak:
            object.__setattr__(self, "peak", _fastest(self.rates))

    @property
    def title(self) -> str:
        return f"@{self.name} · {self.uri}" if self.name else self.uri

    def seconds(self, kind: str, flops: float, moved: float) -> float:
        """The cost model's estimate for a kernel of class `kind`."""
        return self.rates.launch + max(
            flops / float(getattr(self.rates, _CLASSES.get(kind, "elementwise"))), moved / self.rates.memory
        )

    def limit(self, flops: float, moved: float) -> float:
        """The lower bound of the device's time: for its arithmetic, or for its memory traffic."""
        return max(flops / self.peak, moved / self.rates.memory)


def _fastest(rates: Rates) -> float:
    return max(rates.contraction, rates.convolution, rates.elementwise, rates.reduction, rates.generic)


def bound_devices(
    manifest: Manifest, bindings: Mapping[str, str], rates: RateTable, where: str
) -> list[ReportedDevice]:
    """The devices of the program in order; an unnamed one if it names none. Raises DeviceError for invalid
    `bindings`."""
    families = needed_families(manifest.devices, manifest.variants, bindings)
    present = [info for family in families for info in probe(family)]
    try:
        choices = bind(manifest.devices, manifest.variants, bindings, present, where, regions=regions_of(manifest))
    except DeviceError as error:
        if bindings:
            raise
        return _preferred(manifest, rates, str(error))
    return [
        ReportedDevice(
            choice.device.name, choice.info.uri, choice.info.family, choice.variant, rates.of(choice.info.family),
            choice.info.name, max(1, choice.info.threads), choice.note,
        )
        for choice in choices
    ]


def traced_devices(
    manifest: Manifest, rates: RateTable, traced: Mapping[str, tuple[str, str]], path: str
) -> list[ReportedDevice]:
    """The devices of the program according to the trace `path`: name → URI and target. Raises OptionError for devices
    for which the artifact has no code."""
    names = [device.name for device in manifest.devices] or [""]
    found: list[ReportedDevice] = []
    for name in names:
        given = traced.get(name)
        if given is None:
            raise OptionError(f"--trace {path}: a trace of another program: it has no device @{name}; "
                              f"there are: {', '.join(f'@{each}' for each in traced)}")
        uri, target = given
        family = family_of(uri)
        variants = [v for v in manifest.variants if v.target == target and v.family in (family, "cpu")]
        if not variants and target:
            raise OptionError(f"--trace {path}: a trace of another program: device {uri} ran code for {target}; "
                              f"the artifact has {', '.join(v.target for v in manifest.variants)}")
        variant = variants[0] if variants else Variant(family, "", "", [], [], {})
        info = next((info for info in probe(family) if info.uri == split_uri(uri)[0]), DeviceInfo("", uri))
        found.append(ReportedDevice(name, uri, family, variant, rates.of(family), info.name, max(1, info.threads)))
    return found


def _preferred(manifest: Manifest, rates: RateTable, reason: str) -> list[ReportedDevice]:
    """The preferred devices of the program, if this machine cannot run it."""
    devices: Sequence[LogicalDevice] = manifest.devices or [
        LogicalDevice("", [Alternative(variant.family) for variant in manifest.variants])
    ]
    found: list[ReportedDevice] = []
    for device in devices:
        families = [alternative.family for alternative in device.alternatives if alternative.family] or [HOST]
        variant = next(
            (each for family in families for each in manifest.variants if each.family == family),
            next(iter(manifest.variants), Variant(families[0], "", "", [], [], {})),
        )
        found.append(
            ReportedDevice(device.name, variant.family, variant.family, variant, rates.of(variant.family), note=reason)
        )
    return found
