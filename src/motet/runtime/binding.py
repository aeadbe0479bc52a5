"""Binds the devices of a program to those of the machine, and loads the artifact's code on them.

    bound = BoundDevices(artifact, {"gpu": "riscv:qemu"}, pool, threads=4)
    instance = bound.instance(signature, {})     # a function for one combination of extents
    bound.recover(lost)                          # True: another alternative replaces the lost device

If all devices are the host, and no two of them would run much work at the same time, a function is a single command
buffer (`merge.py`, `host_program.py`) and no device is opened. Otherwise its plan is executed over the devices
(`plan_executor.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from motet.artifact.plans import all_steps, has_loops, whole_plan
from motet.artifact.reader import Artifact
from motet.artifact.schema import Plan, Signature, Variant
from motet.errors import ArtifactError, CallError, DeviceError, DeviceLost
from motet.runtime.call import Runnable
from motet.runtime.device import Device, open_device, probe
from motet.runtime.device_program import LoadedDevice
from motet.runtime.drivers.host.driver import HostDevice, open_threads
from motet.runtime.drivers.host.memory import Pool
from motet.runtime.drivers.host.threads import HostThreads
from motet.runtime.host_program import OnHost
from motet.runtime.merge import Merged, is_brief, is_chain, merge_plan
from motet.runtime.plan_executor import PlacedInstance
from motet.runtime.selection import (
    HOST,
    DeviceCandidate,
    DeviceChoice,
    bind,
    needed_families,
    no_code,
    opener,
    regions_of,
)

_log = logging.getLogger("motet")

_PATIENCE = 0.3  # seconds that devices have to end their work after the user's interrupt


@dataclass
class _BindingState:
    """One state of the binding. A lost device leads to a new state."""

    choices: list[DeviceChoice]
    opened: dict[str, LoadedDevice] = field(default_factory=dict[str, LoadedDevice])
    hosts: dict[str, OnHost] = field(default_factory=dict[str, OnHost])  # by target
    threads: dict[str, HostThreads] = field(default_factory=dict[str, HostThreads])
    merged: dict[str, Merged] = field(default_factory=dict[str, Merged])


class BoundDevices:
    """The devices of a session. Binds when constructed; raises DeviceError if a device of the program has no present
    alternative. `notes` records fallbacks that were chosen and devices that were lost. Thread-safe."""

    def __init__(self, artifact: Artifact, bindings: Mapping[str, str], pool: Pool, threads: int) -> None:
        self.artifact = artifact
        self.notes: list[str] = []
        self._pool = pool
        self._threads = threads
        self._lock = threading.RLock()
        self._lost: set[str] = set()
        self._retired: list[LoadedDevice] = []
        manifest = artifact.manifest
        present = [
            info for family in needed_families(manifest.devices, manifest.variants, bindings) for info in probe(family)
        ]
        self._regions = regions_of(manifest)
        choices = bind(
            manifest.devices, manifest.variants, bindings, present, artifact.name, regions=self._regions
        )
        self.notes += [f"{choice.device.label}: {choice.note}" for choice in choices if choice.note]
        self._state = _BindingState(choices)
        try:
            self._open_available()
        except BaseException as error:
            self.close(interrupted=isinstance(error, KeyboardInterrupt))
            raise

    # -- properties ------------------------------------------------------------------------------

    @property
    def choices(self) -> Sequence[DeviceChoice]:
        """The choice for each of the artifact's devices, in their order."""
        return tuple(self._state.choices)

    @property
    def variants(self) -> Sequence[Variant]:
        """The variants in use, each once."""
        return list({choice.variant.target: choice.variant for choice in self._state.choices}.values())

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the constants, on all devices together."""
        state = self._state
        host = sum(code.parameter_bytes for code in state.hosts.values())
        return host + sum(loaded.parameter_total for loaded in state.opened.values())

    @property
    def copied_bytes(self) -> int:
        """Bytes of constants copied to the session's pool."""
        return sum(code.copied_bytes for code in self._state.hosts.values())

    @property
    def opened(self) -> Sequence[LoadedDevice]:
        return tuple(self._state.opened.values())

    # -- running ---------------------------------------------------------------------------------

    def instance(self, signature: Signature, symbols: Mapping[str, int]) -> Runnable:
        """A function for one combination of extents, on the devices bound now."""
        with self._lock:
            state = self._state
            number = self._host_number(state, signature)
            if number is not None:
                merged = self._merged(state, signature, number)
                parts = [(self._host_threads(state, device), end) for device, end in merged.parts]
                return self._host_code(state, number).instance(signature, merged.schedule, symbols, parts)
            devices = [state.opened[choice.info.uri] for choice in state.choices]
        manifest = self.artifact.manifest
        if len({id(device) for device in devices}) == 1 and not self._is_by_steps(signature, devices[0].device):
            schedule = {signature.name: self._merged(state, signature).schedule}
            plan, regions = whole_plan(signature), {signature.name: signature}
            return PlacedInstance(signature, plan, regions, devices, symbols, [schedule] * len(devices))
        plan = manifest.plans[signature.name]
        self._check_code(plan, [device.variant for device in devices])
        schedules = [device.variant.schedules for device in devices]
        return PlacedInstance(signature, plan, manifest.regions, devices, symbols, schedules)

    def _is_by_steps(self, signature: Signature, device: Device) -> bool:
        """Whether a plan on a single device is executed step by step nevertheless: it has loops, or names queues."""
        plan = self.artifact.manifest.plans.get(signature.name)
        if plan is None:
            return False
        return has_loops(plan) or (device.queues > 1 and any(step.queues for step in plan.steps))

    def device(self, name: str) -> Device:
        """The open device bound to @name; `name` may be empty if there is only one. Raises CallError."""
        with self._lock:
            state = self._state
            found = [c for c in state.choices if c.device.name == name or (not name and len(state.choices) == 1)]
            if not found:
                names = ", ".join(f"@{choice.device.name}" for choice in state.choices)
                raise CallError(f"{self.artifact.name}: no device @{name}; the program has {names}")
            uri = found[0].info.uri
            if uri in state.opened:
                return state.opened[uri].device
            return HostDevice(found[0].info, self._host_threads(state, state.choices.index(found[0])), self._pool)

    def recover(self, lost: DeviceLost) -> bool:
        """Replace a lost device by the next alternative; False if a device of the program that was bound to it has
        none. A device that was replaced already is not replaced again."""
        with self._lock:
            if lost.device in self._lost:
                return True
            before = self._state
            gone = [uri for uri in before.opened if uri == lost.device or uri.partition("?")[0] == lost.device]
            hit = [choice for choice in before.choices if choice.info.uri in gone]
            if not hit or not all(choice.further for choice in hit):
                return False
            self._lost.add(lost.device)
            choices = [_next(choice) if choice in hit else _without(choice, gone) for choice in before.choices]
            kept = {uri: loaded for uri, loaded in before.opened.items() if uri not in gone}
            self._state = _BindingState(choices, kept)
            # Calls of other threads may still use them; they learn from the device itself that it is lost.
            self._retired += [before.opened[uri] for uri in gone]
            self._open_available()
            for choice in self._state.choices:
                if any(choice.device.name == each.device.name for each in hit):
                    self._note(f"{choice.device.label}: {lost}; it is {choice.info.uri} now, the call is made again")
            return True

    def close(self, interrupted: bool = False) -> None:
        """Close every device. If `interrupted`, end their work, and do not wait for devices that do not end it."""
        with self._lock:
            closing = [*self._state.opened.values(), *self._retired]
            self._state, self._retired = _BindingState(self._state.choices), []
        if not interrupted:
            for loaded in closing:
                _close(loaded)
            return
        threads = [threading.Thread(target=_abort, args=(loaded,), daemon=True) for loaded in closing]
        for thread in threads:
            thread.start()
        end = time.monotonic() + _PATIENCE
        for loaded, thread in zip(closing, threads, strict=True):
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive() and (abandon := getattr(loaded.device, "abandon", None)) is not None:
                abandon()

    # -- internals -------------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        self.notes.append(text)
        _log.warning("%s: %s", self.artifact.name, text)

    def _open_available(self) -> None:
        """Run `_open_all`; replace devices that are lost meanwhile, too."""
        try:
            self._open_all()
        except DeviceLost as lost:
            if not self.recover(lost):
                raise

    def _open_all(self) -> None:
        """Open the chosen devices; replace a device that cannot be opened by its next alternative."""
        state = self._state
        if self._in_process(state):
            return
        for number in range(len(state.choices)):
            self._open(state, number)
        if self._in_process(state):  # as a result of replacements
            return
        for loaded in state.opened.values():
            loaded.place_parameters(self._regions_on(state, loaded))
        self._note_queues(state)

    def _note_queues(self, state: _BindingState) -> None:
        """Note queues that the program names but the device lacks; their work may run on any queue."""
        absent: dict[int, int] = {}  # by device, a mask
        for step in (step for plan in self.artifact.manifest.plans.values() for step in all_steps(plan)):
            there = state.opened[state.choices[step.device].info.uri].device.queues
            if step.queues and not step.queues & ((1 << there) - 1):
                absent[step.device] = absent.get(step.device, 0) | step.queues
        for number, mask in absent.items():
            choice = state.choices[number]
            last = state.opened[choice.info.uri].device.queues - 1
            named = ", ".join(str(queue) for queue in range(64) if mask >> queue & 1)
            there = f"queues 0 to {last}" if last else "queue 0 alone"
            self._note(
                f"{choice.device.label}: {choice.info.uri} has {there}; what is to run on queue {named} runs on any"
            )

    def _open(self, state: _BindingState, number: int) -> None:
        choice = state.choices[number]
        candidates = [DeviceCandidate(choice.info, choice.variant), *(() if choice.named else choice.further)]
        failed: list[str] = []
        for position, candidate in enumerate(candidates):
            try:
                loaded = self._load(state, candidate, self._regions.get(choice.device.name, set()))
            except DeviceError as error:
                failed.append(str(error))
                continue
            further = choice.further if choice.named else tuple(candidates[position + 1 :])
            state.choices[number] = replace(
                choice, info=candidate.info, variant=loaded.variant, further=further
            )
            if failed:
                self._note(f"{choice.device.label}: {'; '.join(failed)}; it is {candidate.info.uri}")
            return
        named = f"device {choice.device.label}: " if choice.device.name else ""  # the driver's words name the device
        raise DeviceError(f"{self.artifact.name}: {named}{'; '.join(failed)}")

    def _load(self, state: _BindingState, candidate: DeviceCandidate, regions: set[str]) -> LoadedDevice:
        loaded = state.opened.get(candidate.info.uri)
        if loaded is not None and not regions <= set(loaded.variant.schedules):
            target = loaded.variant.target
            raise DeviceError(f"device {candidate.info.uri}: its code, for {target}, lacks kernels of the program")
        if loaded is None:
            info = candidate.info
            if info.family == HOST and "?" not in info.uri:
                info = replace(info, threads=self._threads)
            device = open_device(info)
            try:
                loaded = self._with_code(device, regions)
                if faults := getattr(device, "compile_faults", ()):
                    self.notes.append(f"{info.uri}: code for {loaded.variant.target}, because {'; '.join(faults)}")
                self.notes += [f"{info.uri}: {note}" for note in loaded.notes]
            except BaseException:
                device.close()
                raise
            state.opened[candidate.info.uri] = loaded
        return loaded

    def _with_code(self, device: Device, regions: set[str]) -> LoadedDevice:
        """The device with the first variant that it can run. If its platform compiles the code, and there is a choice,
        it can run what that compiler has built."""
        family, reasons = device.info.family, list[str]()
        variants = [each for each in self.artifact.manifest.variants if opener(each.family) == family]
        chooses = len(variants) > 1 and hasattr(device, "compile_faults")
        for variant in variants:
            loaded = LoadedDevice(device, variant, self.artifact)
            absent = sorted(regions - set(variant.schedules))
            reason = device.obstacle(variant) or (f"no code for {', '.join(absent)}" if absent else None)
            if (reason := reason or (loaded.load_fault() if chooses else None)) is None:
                return loaded
            reasons.append(f"{variant.target}: {reason}")
        if not reasons and not regions and self.artifact.manifest.devices:
            return LoadedDevice(device, no_code(family), self.artifact)
        raise DeviceError(f"device {device.info.uri}: {'; '.join(reasons) or 'no code in this artifact'}")

    def _regions_on(self, state: _BindingState, loaded: LoadedDevice) -> list[str]:
        """The regions bound to this device, whose constants are placed there before the first call."""
        if not self.artifact.manifest.plans:
            return [*loaded.variant.schedules]
        here = [choice.device.name for choice in state.choices if state.opened[choice.info.uri] is loaded]
        return sorted(set[str]().union(*(self._regions[name] for name in here)))

    def _in_process(self, state: _BindingState) -> bool:
        """Whether all devices are the host, and no two of them could run work at the same time for long enough to pay.
        Loops over devices are always executed over the devices."""
        plans = self.artifact.manifest.plans.values()
        if any(choice.info.family != HOST for choice in state.choices) or any(map(has_loops, plans)):
            return False
        one = len({choice.info.uri for choice in state.choices}) == 1
        return one or all(
            is_chain(plan) or is_brief(plan, lambda device: state.choices[device].variant)
            for plan in plans
        )

    def _host_number(self, state: _BindingState, signature: Signature) -> int | None:
        """A host device on which a function can run as one command buffer in this process, because no other device
        exists or takes part in the function; None if there is none."""
        if self._in_process(state):
            return 0
        plan = self.artifact.manifest.plans.get(signature.name)
        if plan is None or has_loops(plan):
            return None
        used = {*(step.device for step in plan.steps), *plan.result_devices}
        one = {state.choices[number].info.uri for number in used}
        return min(used) if len(one) == 1 and state.choices[min(used)].info.family == HOST else None

    def _host_code(self, state: _BindingState, number: int) -> OnHost:
        variant = state.choices[number].variant
        if variant.target not in state.hosts:
            threads = self._host_threads(state, number)
            schedules = list(variant.schedules.values())
            state.hosts[variant.target] = OnHost(self.artifact, variant, schedules, self._pool, threads)
        return state.hosts[variant.target]

    def _host_threads(self, state: _BindingState, device: int) -> HostThreads:
        uri = state.choices[device].info.uri
        if uri not in state.threads:
            state.threads[uri] = open_threads(uri, self._threads)
        return state.threads[uri]

    def _check_code(self, plan: Plan, variants: Sequence[Variant]) -> None:
        """Raises ArtifactError if a device of the plan has no code for a region bound to it."""
        for step in all_steps(plan):
            if step.op == "run" and step.region not in variants[step.device].schedules:
                raise ArtifactError(
                    f"{self.artifact.name}: region {step.region!r}: no code for {variants[step.device].target}"
                )

    def _merged(self, state: _BindingState, signature: Signature, number: int = 0) -> Merged:
        """The function as one schedule, if all devices share one memory: that of device `number`."""
        manifest, name = self.artifact.manifest, signature.name
        schedules = state.choices[number].variant.schedules
        if name not in manifest.plans:
            return Merged(schedules[name], [])
        if name not in state.merged:
            self._check_code(manifest.plans[name], [state.choices[number].variant] * len(state.choices))
            state.merged[name] = merge_plan(signature, manifest.plans[name], manifest.regions, schedules)
        return state.merged[name]


def _close(loaded: LoadedDevice) -> None:
    with suppress(DeviceError):  # a lost device has no resources to return
        loaded.close()


def _abort(loaded: LoadedDevice) -> None:
    with suppress(DeviceError):
        loaded.device.abort()
    _close(loaded)


def _next(choice: DeviceChoice) -> DeviceChoice:
    first, *rest = choice.further
    return DeviceChoice(choice.device, first.info, first.variant, tuple(rest), choice.note)


def _without(choice: DeviceChoice, gone: Sequence[str]) -> DeviceChoice:
    return replace(choice, further=tuple(item for item in choice.further if item.info.uri not in gone))
