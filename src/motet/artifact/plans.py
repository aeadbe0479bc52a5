"""Checks of what a manifest says of devices: the devices themselves, the plans over them, and that there is code."""

from __future__ import annotations

from motet.artifact.schema import Manifest, Plan, Signature, Step
from motet.errors import ArtifactError


def check_plans(manifest: Manifest, where: str) -> None:
    """Raises ArtifactError unless devices, links and plans refer to what is there, and every value of a plan is
    written once, before it is read."""
    names = [device.name for device in manifest.devices]
    if len(set(names)) != len(names):
        raise ArtifactError(f"{where}: a device stands there twice: {', '.join(names)}")
    if manifest.devices and not 0 <= manifest.default_device < len(names):
        raise ArtifactError(f"{where}: default device {manifest.default_device}: there are {len(names)}")
    for device in manifest.devices:
        for alternative in device.alternatives:
            kinds = bool(alternative.family), bool(alternative.fallback), alternative.ordinal is not None
            if kinds not in ((True, False, True), (True, False, False), (False, True, False), (False, False, True)):
                raise ArtifactError(
                    f"{where}: device {device.name!r}: an alternative is a family, an ordinal, both, or a fallback"
                )
            if (alternative.ordinal or 0) < 0:
                raise ArtifactError(f"{where}: device {device.name!r}: ordinal {alternative.ordinal}")
    for link in manifest.links:
        if link.source not in names or link.target not in names:
            raise ArtifactError(f"{where}: link {link.source!r} to {link.target!r}: devices are {', '.join(names)}")
    functions = {signature.name: signature for signature in manifest.functions}
    if (manifest.devices and set(manifest.plans) != set(functions)) or (manifest.plans and not manifest.devices):
        raise ArtifactError(
            f"{where}: has plans for {', '.join(manifest.plans) or 'none'}; expected {', '.join(functions) or 'none'}"
        )
    for name, plan in manifest.plans.items():
        _check_plan(plan, functions[name], manifest, f"{where}: plan {name!r}")


def _check_plan(plan: Plan, signature: Signature, manifest: Manifest, where: str) -> None:
    if len(plan.inputs) != len(signature.inputs) or len(plan.results) != len(signature.results):
        raise ArtifactError(f"{where}: has {len(plan.inputs)} inputs and {len(plan.results)} results")
    if len(plan.input_devices) != len(plan.inputs) or len(plan.result_devices) != len(plan.results):
        raise ArtifactError(f"{where}: not one device for each input and result")
    for device in (*plan.input_devices, *plan.result_devices):
        _check_device(device, manifest, where)
    ready: set[int] = set()
    for value in plan.inputs:
        _write(value, plan, ready, f"{where}: inputs")
    for number, step in enumerate(plan.steps):
        _check_step(step, plan, ready, manifest, f"{where}: step {number}")
    for value in plan.results:
        if value not in ready:
            raise ArtifactError(f"{where}: result value {value}: no step writes it")


def _check_step(step: Step, plan: Plan, ready: set[int], manifest: Manifest, where: str) -> None:
    _check_device(step.device, manifest, where)
    for value in step.operands:
        if value not in ready:
            raise ArtifactError(f"{where}: value {value}: no step before writes it")
    for value in step.results:
        _write(value, plan, ready, where)
    if not 0 <= step.queues < 1 << 64:
        raise ArtifactError(f"{where}: queues {step.queues}")
    operands, results = 1, 1
    if step.op == "run":
        region = manifest.regions.get(step.region)
        if region is None:
            raise ArtifactError(f"{where}: region {step.region!r}: no such region")
        operands, results = len(region.inputs), len(region.results)
    if len(step.operands) != operands or len(step.results) != results:
        raise ArtifactError(
            f"{where}: {len(step.operands)} operands and {len(step.results)} results; expected {operands} and {results}"
        )


def check_code(manifest: Manifest, where: str) -> None:
    """Raises ArtifactError where a region of a plan has no code in any variant."""
    there = {name for variant in manifest.variants for name in variant.schedules}
    for name in manifest.regions:
        if name not in there:
            raise ArtifactError(f"{where}: region {name!r}: no variant has code for it")


def _write(value: int, plan: Plan, ready: set[int], where: str) -> None:
    if not 0 <= value < plan.values:
        raise ArtifactError(f"{where}: value {value}: there are {plan.values}")
    if value in ready:
        raise ArtifactError(f"{where}: value {value}: it is written twice")
    ready.add(value)


def _check_device(device: int, manifest: Manifest, where: str) -> None:
    if not 0 <= device < len(manifest.devices):
        raise ArtifactError(f"{where}: device {device}: there are {len(manifest.devices)}")
