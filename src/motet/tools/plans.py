"""Shows plans as text: the steps of functions over several devices, with their estimated and measured times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.artifact.schema import Manifest, Plan, Step
    from motet.runtime.session import Session

_RUNS = 5


def measure_steps(session: Session, name: str, arrays: Sequence[Any]) -> list[float] | None:
    """The shortest time of each step of a function's plan over some runs, in seconds, with steps run serially; None if
    all devices are one, since the steps are then one piece of work."""
    function, plan = session[name], session.artifact.manifest.plans[name]
    function(*arrays)
    runs = [function.profile(*arrays) for _ in range(_RUNS)]
    expected = [step.region or step.op for step in plan.steps]
    if any([label for label, _ in run] != expected for run in runs):
        return None
    return [min(seconds) for seconds in zip(*[[each for _, each in run] for run in runs], strict=True)]


def plan_lines(manifest: Manifest, measured: Mapping[str, Sequence[float] | None] | None = None) -> list[str]:
    """The devices of a program and the plan of each of its functions; `measured` are the seconds of its steps, by
    function."""
    from motet.artifact.device_flags import print_alternative
    from motet.artifact.schema import Alternative

    def alternatives(given: Sequence[Alternative]) -> str:
        return ", else ".join(map(print_alternative, given))

    lines = ["devices"]
    for number, device in enumerate(manifest.devices):
        default = " (default)" if number == manifest.default_device else ""
        lines.append(f"  @{device.name}{default}: {alternatives(device.alternatives)}")
    for link in manifest.links:
        said = [word for word, has in (("transparent access", link.transparent_access),
                                       ("unified memory", link.unified_memory)) if has]
        lines.append(f"  @{link.source} to @{link.target}: {', '.join(said) or 'nothing shared'}")
    for name, plan in manifest.plans.items():
        lines += ["", f"plan of {name}", *_steps(manifest, plan, None if measured is None else measured.get(name))]
        if measured is not None and name in measured and measured[name] is None:
            lines.append("  not measured by step: all its devices are one here, which does it in one go")
    return lines


def _steps(manifest: Manifest, plan: Plan, measured: Sequence[float] | None) -> list[str]:
    from motet.tools.show import show_seconds, show_table

    names = [f"@{device.name}" for device in manifest.devices]
    header = ["step", "device", "what", "reads", "makes", "estimate"]
    rows: list[list[str]] = []
    for number, step, part in numbered_steps(plan):
        rows.append([
            number, names[step.device], describe_step(step, part), _values(step.operands), _values(step.results),
            "-" if step.seconds is None else show_seconds(step.seconds),
        ])
        if measured is not None:  # the steps inside a loop are measured with it
            rows[-1].append("-" if part else show_seconds(measured[int(number)]))
    if measured is not None:
        header.append("measured")
    text = show_table(header, rows, indent="  ")
    whole = "" if plan.seconds is None else f"; a call is estimated to take {show_seconds(plan.seconds)}"
    return [f"  inputs {_values(plan.inputs)}, results {_values(plan.results)}{whole}", *text]


def numbered_steps(plan: Plan, before: str = "", part: str = "") -> Iterator[tuple[str, Step, str]]:
    """All steps of a plan, each with its number and the part of a loop that contains it. Steps of a loop follow the
    loop's own step: `3`, then `3.c0` in its condition, `3.b0`, `3.b1` in its body. Numbers of values are local to the
    part."""
    for number, step in enumerate(plan.steps):
        name = f"{before}{number}"
        yield name, step, part
        if step.loop is not None:
            yield from numbered_steps(step.loop.condition, f"{name}.c", "condition")
            yield from numbered_steps(step.loop.body, f"{name}.b", "body")


def describe_step(step: Step, part: str = "") -> str:
    """A description of a step; `part` is the part of the loop that contains it."""
    if part:
        return f"{part}: {describe_step(step)}"
    if step.op == "transfer":
        return "transfer to it"
    if step.loop is not None:
        kept, carried = len(step.operands) - step.loop.carried, step.loop.carried
        return f"loop {step.region} with {carried} carried values" + (f" and {kept} that stay" if kept else "")
    queues = [str(queue) for queue in range(64) if step.queues >> queue & 1]
    return f"run {step.region}" + (f" on queue {', '.join(queues)}" if queues else "")


def _values(numbers: Sequence[int]) -> str:
    return " ".join(f"%{number}" for number in numbers) or "-"
