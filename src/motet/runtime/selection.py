"""Selects the machine's devices for the devices of a program, and the variants of an artifact that they run.

    choices = bind(manifest.devices, manifest.variants, {"gpu": "cuda:0"}, present)

An artifact without devices runs on the host (`choose`), without loading any other driver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import motet.cpu_features as cpu_features
from motet.artifact.device_flags import print_alternative
from motet.artifact.places import split_place
from motet.artifact.plans import all_steps
from motet.artifact.schema import Alternative, LogicalDevice, Manifest, Variant
from motet.artifact.uri import family_of, split_required, split_uri
from motet.errors import ArtifactError, DeviceError
from motet.runtime.device import DeviceInfo, driver_names, find_device, is_family, numbered_instance, obstacle_of
from motet.runtime.launching import how_to_launch

HOST = "host"
# Older names of families, and families of code whose devices another family's driver opens.
_ALIASES = {"cpu": HOST, "intel": "opencl"}

Obstacle = Callable[[DeviceInfo, Variant], str | None]


@dataclass(frozen=True)
class DeviceCandidate:
    """A physical device, and the variant that it would run."""

    info: DeviceInfo
    variant: Variant


@dataclass(frozen=True)
class DeviceChoice:
    """The choice for `device`, a device of the program. `further` are the usable alternatives after it, in order, in
    case it is lost at run time; none for one that the user bound as required. One that the user `named` must open, too:
    a mistake is not a loss. `note` is a message for users."""

    device: LogicalDevice
    info: DeviceInfo
    variant: Variant
    further: tuple[DeviceCandidate, ...] = ()
    note: str = ""
    named: bool = False


# -- the host only ---------------------------------------------------------------------------------


def choose(variants: Sequence[Variant], architecture: str, features: Collection[str], where: str) -> Variant:
    """The first variant, in the artifact's order of preference, that a CPU with `features` can run.

    Raises DeviceError, which lists what each variant needs and what is missing.
    """
    reasons: list[str] = []
    for variant in variants:
        reason = _host_obstacle(variant, architecture, features)
        if reason is None:
            return variant
        reasons.append(f"{variant.target} ({reason})")
    listing = "; ".join(reasons) or "none"
    raise DeviceError(
        f"{where}: none of its variants runs on this machine ({architecture}): {listing}; "
        "compile for a target that it has"
    )


def _host_obstacle(variant: Variant, architecture: str, features: Collection[str]) -> str | None:
    reason = processor_lacks(variant, architecture, features)
    if reason is not None or cpu_features.allow(variant.features):
        return reason
    return "needs amx, which the operating system refuses"


def processor_lacks(variant: Variant, architecture: str, features: Collection[str]) -> str | None:
    """Why a processor with `features`, of this machine or another, cannot run a variant; None if it can."""
    if opener(variant.family) != HOST:
        return f"for {variant.family} devices, of which this session has none"
    if (needed := variant.triple.split("-")[0]) != architecture:
        return f"for {needed}"
    missing = [feature for feature in variant.features if feature not in features]
    return f"needs {', '.join(missing)}, which the processor lacks" if missing else None


# -- any devices -----------------------------------------------------------------------------------


def bind(
    devices: Sequence[LogicalDevice],
    variants: Sequence[Variant],
    bindings: Mapping[str, str],
    present: Sequence[DeviceInfo],
    where: str = "",
    obstacle: Obstacle | None = None,
    regions: Mapping[str, Collection[str]] | None = None,
) -> list[DeviceChoice]:
    """The choice for each of `devices`, in their order.

    `bindings` maps names of devices to URIs or UUIDs; the name `""` stands for all that are not named. Other devices
    get the first of their alternatives that is present and has code that it can run. `present` may contain unavailable
    devices, whose reasons are part of error messages. An artifact without devices has a single unnamed one, of the
    families of its variants. `obstacle` tells why a device cannot run a variant of its family; by default the host's
    CPU is checked, and other devices are assumed to run all variants of their family. `regions` are the regions that
    each device runs, by its name (`regions_of`); a variant must have code for them. `where` is the prefix of errors.

    Raises DeviceError for an invalid binding, and if a device has no usable alternative; ArtifactError for devices that
    fall back to one another in a circle, or to an unknown device.
    """
    if not devices:
        families = dict.fromkeys(opener(variant.family) for variant in variants)
        devices = [LogicalDevice("", [Alternative(family) for family in families])]
    _check_fallbacks(devices, where)
    _check_names(devices, bindings, where)
    return _Binding(
        devices, variants, bindings, present, where, obstacle or processor_or_nothing, regions or {}
    ).run()


def no_code(family: str) -> Variant:
    """The variant of a device that stores values but runs no code."""
    return Variant(family, "no code", "", [], [], {})


def regions_of(manifest: Manifest) -> dict[str, set[str]]:
    """The regions that each device of an artifact runs, by its name."""
    found: dict[str, set[str]] = {device.name: set() for device in manifest.devices}
    for step in (step for plan in manifest.plans.values() for step in all_steps(plan)):
        if step.op == "run":
            found[manifest.devices[step.device].name].add(step.region)
    return found


def explain(manifest: Manifest, bindings: Mapping[str, str], present: Sequence[DeviceInfo], where: str) -> list[str]:
    """Lines for users: the device that each device of an artifact would be bound to, or why there is none.

    A program that only declares devices needs no code for them. Raises like `bind` for errors in the bindings or the
    artifact.
    """
    devices: Sequence[LogicalDevice] = manifest.devices
    variants: Sequence[Variant] = manifest.variants
    if not devices:
        devices = [LogicalDevice("", [Alternative(family) for family in dict.fromkeys(v.family for v in variants)])]
    if not manifest.functions:
        variants = [
            Variant(family, "any target", "", [], [], {}) for family in {opener(info.family): None for info in present}
        ]
    _check_fallbacks(devices, where)
    _check_names(devices, bindings, where)
    obstacle = processor_or_nothing if manifest.functions else lambda info, variant: None
    families = [opener(variant.family) for variant in variants]
    asked = {family for family in families if family != HOST and families.count(family) > 1}
    return _Binding(devices, variants, bindings, present, where, lambda info, variant: (
        obstacle_of if info.family in asked else obstacle)(info, variant), regions_of(manifest)).explain()


def needed_families(
    devices: Sequence[LogicalDevice], variants: Sequence[Variant], bindings: Mapping[str, str]
) -> list[str]:
    """The drivers whose devices `bind` needs to know."""
    items = [item for device in devices for item in device.alternatives if not item.fallback]
    if any(not item.family for item in items):
        return driver_names()  # the number of a device among all present ones
    named = [opener(item.family) for item in items]
    if not devices:
        named = [opener(variant.family) for variant in variants]
    asked = [family_of(split_place(uri)[1]) for uri in bindings.values()]
    if any(not is_family(family) for family in asked):
        return driver_names()  # a UUID does not identify the driver
    return list(dict.fromkeys([*named, *asked]))


def processor_or_nothing(info: DeviceInfo, variant: Variant) -> str | None:
    """Why the host's CPU cannot run a variant; None for other devices, which are not checked before they are open."""
    if info.family != HOST:
        return None
    return _host_obstacle(variant, cpu_features.machine(), cpu_features.host_features())


def describe_choice(choice: DeviceChoice) -> list[str]:
    """Lines for users: the device that a device of the program is bound to, its alternatives, and notes."""
    name = choice.device.label
    further = "".join(f", else {candidate.info.uri}" for candidate in choice.further)
    lines = [f"{name}: {choice.info.uri} ({choice.info.name}), code for {choice.variant.target}{further}"]
    return [*lines, f"{name}: note: {choice.note}"] if choice.note else lines


# -- internals -------------------------------------------------------------------------------------


@dataclass
class _Binding:
    """One call of `bind`. Devices are bound in order, except that fallbacks are bound before their users."""

    devices: Sequence[LogicalDevice]
    variants: Sequence[Variant]
    bindings: Mapping[str, str]
    present: Sequence[DeviceInfo]
    where: str
    obstacle: Obstacle
    regions: Mapping[str, Collection[str]]
    choices: dict[str, DeviceChoice] = field(default_factory=dict[str, DeviceChoice])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    passed: dict[str, str] = field(default_factory=dict[str, str])  # reasons of failed devices
    takers: dict[str, str] = field(default_factory=dict[str, str])  # automatic bindings, by URI
    later: dict[str, list[Alternative]] = field(default_factory=dict[str, list[Alternative]])  # after the chosen one

    def run(self) -> list[DeviceChoice]:
        self.fill_all()
        for message in self.failed.values():  # report the first failure, not a device that falls back to it
            raise DeviceError(message)
        return [self.with_further(device) for device in self.devices]

    def explain(self) -> list[str]:
        self.fill_all()
        lines: list[str] = []
        for device in self.devices:
            if device.name in self.failed:
                lines.append(f"{device.label}: nothing: {self.passed[device.name]}")
            else:
                lines += describe_choice(self.with_further(device))
        return lines

    def fill_all(self) -> None:
        for device in self.devices:
            uri = self.bindings.get(device.name, self.bindings.get(""))
            if uri is not None:
                self.choices[device.name] = self.bound(device, uri)
        for device in self.devices:
            self.fill(device)

    def bound(self, device: LogicalDevice, uri: str) -> DeviceChoice:
        """The device that the user named. If it is lost, the program's alternatives after it replace it, or all of them
        if it is none of them, unless it is required. Raises DeviceError."""
        uri, required = split_required(uri)
        info = find_device(uri, self.present)
        same = [number for number, item in enumerate(device.alternatives) if _describes(item, info)]
        own = device.alternatives[same[0]].options if same else ""
        info = info if "?" in uri else _with_options(info, own)
        self.later[device.name] = [] if required else list(device.alternatives[same[0] + 1 if same else 0 :])
        found = self.code_for(info, device)
        if isinstance(found, str):
            families = ", ".join(dict.fromkeys(variant.family for variant in self.variants)) or "none"
            raise DeviceError(
                f"{self.name(device)}: {uri}: {found}; the artifact has code for: {families}; "
                "bind another device, or compile for this one"
            )
        self.takers.setdefault(_base(info), device.name)
        return DeviceChoice(device, info, found, named=True)

    def fill(self, device: LogicalDevice) -> None:
        """Add the choice for `device` to `choices`, or an error message to `failed`."""
        if device.name in self.choices or device.name in self.failed:
            return
        reasons: list[str] = []
        for number, alternative in enumerate(device.alternatives):
            found = self.take(alternative, device)
            if isinstance(found, DeviceCandidate):
                # Code for some devices of a driver: another one may run it if this one cannot.
                others = [] if opener(alternative.family) == alternative.family else [alternative] * len(self.present)
                self.later[device.name] = [*others, *device.alternatives[number + 1 :]]
                self.choices[device.name] = self.chosen(device, alternative, found, reasons)
                return
            reasons.append(f"{print_alternative(alternative)} ({found})")
        self.passed[device.name] = ", ".join(reasons) or "it has no alternatives"
        self.failed[device.name] = self.nothing_fits(device, reasons)

    def chosen(
        self, device: LogicalDevice, alternative: Alternative, found: DeviceCandidate, passed: Sequence[str]
    ) -> DeviceChoice:
        """A choice; `passed` are the reasons why earlier alternatives were not chosen."""
        note = f"it falls back to {found.info.uri}: {', '.join(passed)}" if alternative.fallback and passed else ""
        if not alternative.fallback and alternative.ordinal is None:
            other = self.takers.setdefault(_base(found.info), device.name)
            if other != device.name:
                shares = (
                    f"it shares {found.info.uri} with @{other}: there is no other {alternative.family} device "
                    "for it"
                )
                note = f"{note}; {shares}" if note else shares
        return DeviceChoice(device, found.info, found.variant, note=note)

    def take(
        self, alternative: Alternative, device: LogicalDevice, besides: Collection[str] = ()
    ) -> DeviceCandidate | str:
        """The candidate of an alternative of `device`, except the URIs in `besides`; or why there is none."""
        if alternative.fallback:
            return self.fallback(alternative.fallback, device)
        if not alternative.family:
            return self.numbered(alternative.ordinal or 0, device)
        family = opener(alternative.family)
        known = [info for info in self.present if info.family == family]
        if alternative.rank is not None:
            ranks = 1 + max((info.rank for info in self.present), default=0)
            if alternative.rank >= ranks:
                return f"this run has {ranks} rank{'s' if ranks > 1 else ''}; {how_to_launch(alternative.rank + 1)}"
            known = [info for info in known if info.rank == alternative.rank]
        here = [info for info in known if info.available]
        if not here:
            return next((info.reason for info in known), "") or f"no {family} device is present"
        if alternative.ordinal is not None:
            more = [numbered_instance(info, f"{info.uri}/{alternative.ordinal}") for info in here]
            here = [info for info in (*here, *more) if info is not None and info.ordinal == alternative.ordinal][:1]
            if not here:
                count = sum(info.available for info in known)
                return f"only {count} of them {'is' if count == 1 else 'are'} present"
        # Prefer a device that is not bound yet.
        here.sort(key=lambda info: alternative.ordinal is None and _base(info) in self.takers)
        reason = ""
        for info in here:
            found = self.code_for(info, device)
            if not isinstance(found, str) and _with_options(info, alternative.options).uri not in besides:
                return DeviceCandidate(_with_options(info, alternative.options), found)
            reason = reason or (found if isinstance(found, str) else "it is taken")
        return reason

    def numbered(self, ordinal: int, device: LogicalDevice) -> DeviceCandidate | str:
        """The device with this number among all present ones."""
        here = [info for info in self.present if info.available]
        if ordinal >= len(here):
            return f"{len(here)} devices are present"
        return self.candidate(here[ordinal], device)

    def fallback(self, name: str, device: LogicalDevice) -> DeviceCandidate | str:
        self.fill(next(other for other in self.devices if other.name == name))
        if name not in self.choices:
            return "nothing fills it"
        return self.candidate(self.choices[name].info, device)

    def candidate(self, info: DeviceInfo, device: LogicalDevice) -> DeviceCandidate | str:
        """A physical device for `device`; or why it has no code for it."""
        found = self.code_for(info, device)
        return found if isinstance(found, str) else DeviceCandidate(info, found)

    def code_for(self, info: DeviceInfo, device: LogicalDevice) -> Variant | str:
        """The first variant that a device can run, with code for all regions of `device`; or why there is none."""
        reasons: list[str] = []
        for variant in self.variants:
            if opener(variant.family) != info.family:
                continue
            reason = self.obstacle(info, variant) or self.lacking(variant, device)
            if reason is None:
                return variant
            reasons.append(f"{variant.target}: {reason}")
        if not reasons and device.name in self.regions and not self.regions[device.name]:
            return no_code(info.family)
        return "; ".join(reasons) or "no code in this artifact"

    def lacking(self, variant: Variant, device: LogicalDevice) -> str | None:
        needed = self.regions.get(device.name, ())
        if all(region in variant.schedules for region in needed):
            return None
        families = dict.fromkeys(v.family for v in self.variants if all(region in v.schedules for region in needed))
        made = ", ".join(families) or "none"
        return f"what {device.label} runs was compiled for {made}; list {variant.family} among its alternatives"

    def with_further(self, device: LogicalDevice) -> DeviceChoice:
        """A choice with the alternatives after it."""
        choice = self.choices[device.name]
        further: dict[str, DeviceCandidate] = {}
        for alternative in self.later.get(device.name, ()):
            for found in self.following(alternative, device, (choice.info.uri, *further)):
                if found.info.uri != choice.info.uri:
                    further.setdefault(found.info.uri, found)
        return replace(choice, further=tuple(further.values()))

    def following(
        self, alternative: Alternative, device: LogicalDevice, besides: Collection[str]
    ) -> list[DeviceCandidate]:
        """The candidates of an alternative. A device that `device` falls back to may be lost with it, and is replaced
        by its own alternatives."""
        found = [self.take(alternative, device, besides)]
        if alternative.fallback and alternative.fallback in self.choices:
            other = next(each for each in self.devices if each.name == alternative.fallback)
            found += [self.candidate(each.info, device) for each in self.with_further(other).further]
        return [each for each in found if isinstance(each, DeviceCandidate)]

    def nothing_fits(self, device: LogicalDevice, reasons: Sequence[str]) -> str:
        here = ", ".join(info.uri for info in self.present if info.available) or "none"
        named = [item for item in device.alternatives if not item.fallback]
        others = [other.name for other in self.devices if other.name in self.choices and other.name != device.name]
        fallback = f"@{others[0]}" if others else HOST
        flag = f"{device.name}=" if device.name else ""
        wanted = ",".join(dict.fromkeys([*map(print_alternative, named), fallback]))
        return (
            f"{self.name(device)}: none of its alternatives is present: {', '.join(reasons) or 'it has none'}; "
            f"present: {here}. Bind it with --device {flag}…, or recompile with a fallback: --device {flag}{wanted}"
        )

    def name(self, device: LogicalDevice) -> str:
        name = f"device {device.label}" if device.name else device.label
        return f"{self.where}: {name}" if self.where else name


def opener(name: str) -> str:
    """The family of the driver that opens devices of a family."""
    return _ALIASES.get(name, name)


def _describes(alternative: Alternative, info: DeviceInfo) -> bool:
    """Whether a device is one of those of an alternative."""
    return opener(alternative.family) == info.family and alternative.ordinal in (None, info.ordinal)


def _with_options(info: DeviceInfo, options: str) -> DeviceInfo:
    return replace(info, uri=f"{info.uri}?{options}") if options else info


def _base(info: DeviceInfo) -> str:
    """The identity of a device: its URI without options."""
    return split_uri(info.uri)[0]


def _check_names(devices: Sequence[LogicalDevice], bindings: Mapping[str, str], where: str) -> None:
    known = [device.name for device in devices]
    for name in bindings:
        if name and name not in known:
            listing = ", ".join(f"@{item}" for item in known if item) or "one without a name"
            raise DeviceError(
                f"{where + ': ' if where else ''}device @{name}: the program has no device of that name; "
                f"it has: {listing}"
            )


def _check_fallbacks(devices: Sequence[LogicalDevice], where: str) -> None:
    """Raises ArtifactError for a fallback to an unknown device, or in a circle."""
    prefix = f"{where}: " if where else ""
    targets = {
        device.name: [item.fallback for item in device.alternatives if item.fallback] for device in devices
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " → ".join(f"@{item}" for item in (*path[path.index(name) :], name))
            raise ArtifactError(f"{prefix}devices that fall back to one another in a circle: {circle}")
        if name in done:
            return
        if name not in targets:
            raise ArtifactError(f"{prefix}device @{path[-1]}: falls back to @{name}, which there is not")
        for target in targets[name]:
            visit(target, (*path, name))
        done.add(name)

    for name in targets:
        visit(name, ())
