"""The output of motet inspect --schedules: the schedules of kernels as text, or as a file for motet compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact


def schedule_lines(artifact: Artifact) -> list[str]:
    """The schedules of every target's kernels, as text."""
    from motet.artifact.kernel_schedules import schedules_of

    lines: list[str] = []
    target = ""
    for each in schedules_of(artifact):
        if each.target != target:
            target = each.target
            lines += ["", f"target {target}"] if lines else [f"target {target}"]
        lines += [f"  {', '.join(each.names)}: {each.about}", f"    key         {each.kernel}"]
        lines += [f"    record      {each.origin}"] if each.origin else []
        content = dict(each.schedule)
        launches = content.pop("launches", [])
        micro = [f"{kernel['name']}: {kernel['meaning']}" for kernel in content.pop("microkernels", [])]
        lines += [f"    {name:<11} {_text(value)}" for name, value in content.items()]
        lines += [f"    microkernel {line}" for line in micro]
        lines += [
            f"    launch {number:<4} " + ", ".join(f"{name} {_text(value)}" for name, value in launch.items())
            for number, launch in enumerate(launches)
        ]
    return lines or ["no schedules of kernels in this artifact"]


def _text(value: Any) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def schedules_file(artifact: Artifact) -> str:
    """The schedules as JSON, a file for --option schedules=FILE."""
    import msgspec

    from motet.artifact.kernel_schedules import encode_schedules, schedules_of

    return msgspec.json.format(encode_schedules(schedules_of(artifact)), indent=1).decode()
