"""What the lab works on: a kernel of a program, on a device.

    "matmul:512x512x512xf32" or "model.onnx", and a device → the program's kernels → one of them, a `KernelSubject`
    a subject and a schedule → an artifact whose kernel has that schedule
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from motet.artifact.kernel_schedules import ScheduledKernel, encode_schedules
from motet.artifact.schema import Variant
from motet.compiler import service
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.kernels.schedule import KernelSchedule, Reason, encode_schedule
from motet.compiler.service import CompileRequest
from motet.compiler.source_files import read_file
from motet.compiler.targets.device_flags import parse_device_flags_or_uris
from motet.compiler.targets.families import HOST, families, own_level, resolve_target
from motet.compiler.targets.family import Target
from motet.compiler.targets.opencl import OPENCL
from motet.errors import DeviceError, OptionError
from motet.lab.operators import is_operator, operator_program
from motet.runtime.device import DeviceInfo, find_device, obstacle_of

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.compiler.build.listing import ListedKernel
    from motet.compiler.kernels.kernel import Kernel


@dataclass(frozen=True)
class LabProgram:
    """A program, given as an operator or a file, compiled for the best target of a device."""

    text: str
    request: CompileRequest
    device: str  # URI
    target: Target
    kernels: tuple[ListedKernel, ...]
    asked: str = HOST  # the device as the caller named it


@dataclass(frozen=True)
class KernelSubject:
    """A kernel with schedules. `listed.schedule` is the compiler's choice."""

    program: LabProgram
    listed: ListedKernel

    @property
    def kernel(self) -> Kernel:
        assert self.listed.kernel is not None
        return self.listed.kernel

    @property
    def chosen(self) -> KernelSchedule:
        """The schedule that the compiler chooses."""
        assert self.listed.schedule is not None
        return self.listed.schedule

    @property
    def alone(self) -> bool:
        """Whether the program consists of this kernel."""
        return len(self.program.kernels) == 1

    @property
    def on_host(self) -> bool:
        return self.program.target.family == HOST

    def parse(self, text: str, microkernels: Sequence[Microkernel] = ()) -> KernelSchedule:
        """The schedule that text describes: loops, or on GPUs the tiles and stages of launches. Raises OptionError."""
        from motet.compiler.schedule_text.launches import parse_launches
        from motet.compiler.schedule_text.parsing import parse_schedule
        from motet.compiler.schedule_text.plain import read_plain

        content = read_plain(text)
        if self.listed.choices and "class" not in content:
            return parse_launches(content, self.listed.choices)
        return parse_schedule(content, self.kernel, microkernels)

    def text(self, schedule: KernelSchedule) -> str:
        """A schedule as one line of text, which `parse` reads."""
        from motet.compiler.kernels.schedule import LaunchesSchedule
        from motet.compiler.schedule_text.formatting import format_schedule
        from motet.compiler.schedule_text.launches import launches_text

        if isinstance(schedule, LaunchesSchedule) and self.listed.choices:
            return launches_text(schedule, self.listed.choices)
        return format_schedule(schedule, self.kernel)

    def reasons(self, schedule: KernelSchedule) -> Sequence[Reason]:
        """Why `schedule` is not legal; empty if it is."""
        from motet.compiler.targets.cpu import CpuTarget

        if isinstance(self.program.target, CpuTarget):
            from motet.compiler.codegen.cpu.select import check

            return check(schedule, self.kernel, self.program.target)
        from motet.compiler.kernels.schedule import LaunchesSchedule

        if not isinstance(schedule, LaunchesSchedule):
            return [Reason("class", str(type(schedule).__struct_config__.tag), "launches, for GPUs")]
        if len(schedule.launches) != len(self.listed.forms):
            return [Reason("launches", len(schedule.launches), f"{len(self.listed.forms)} of them")]
        return [
            Reason(f"launches[{i}]", launch.form, f"one of {'; '.join(form.form for form in forms)}")
            for i, (launch, forms) in enumerate(zip(schedule.launches, self.listed.forms, strict=True))
            if (launch.form, launch.number) not in [(form.form, form.number) for form in forms]
        ]


def open_program(text: str, device: str = HOST, options: Mapping[str, str] | None = None) -> LabProgram:
    """The program that `text` names, an operator's specification or a file, and its kernels on `device`, a device
    expression or a URI. Raises OptionError, CompileError, DeviceError."""
    source, path = (operator_program(text).encode(), text) if is_operator(text) else (None, text)
    if source is None:
        read_file(path)  # raises OptionError
    flags = parse_device_flags_or_uris([_best_level(device)])
    if len(flags) != 1 or flags[0].name:
        raise OptionError(f"device {device}: expected one physical device, such as host or cuda:0")
    request = CompileRequest(source, path, devices=flags, cache=False, options=tuple((options or {}).items()))
    targets = [resolve_target(name) for name in service.targets_of(request)]
    only = flags[0].alternatives[0]
    uri = flags[0].uri or (HOST if only.family == HOST else _first_device(only.family))
    if len(targets) > 1 and only.family == OPENCL.name and (taken := _taken(targets, uri)) is not None:
        only = msgspec.structs.replace(only, options="&".join(filter(None, [only.options, f"cpu={taken.name}"])))
        request, targets = replace(request, devices=(msgspec.structs.replace(flags[0], alternatives=(only,)),)), [taken]
    return LabProgram(text, request, uri, targets[0], tuple(service.list_kernels(request)), device)


def _taken(targets: Sequence[Target], uri: str) -> Target | None:
    """The first of `targets` whose code an OpenCL platform takes; None without a device that takes one."""
    for target in targets:
        variant = Variant(target.family, target.name, target.triple, list(target.requires), [], {})
        with contextlib.suppress(DeviceError):
            if obstacle_of(find_device(uri), variant) is None:
                return target
    return None


def _first_device(family: str) -> str:
    """The URI of the first device of a family; of its number 0 if there is none, which is an error where it is used."""
    try:
        return find_device(family).uri
    except DeviceError:
        return f"{family}:0"


def _best_level(device: str) -> str:
    """`device` with the best CPU level of this machine, if it is the host without one."""
    if device != HOST:
        return device
    if (level := own_level()) is not None:
        return f"{HOST}{{cpu={level.name}}}"
    raise DeviceError(f"device {HOST}: this processor has no level of {', '.join(families()[HOST].names)}")


def subject_of(program: LabProgram, name: str = "") -> KernelSubject:
    """The kernel with this name or key, by default the one with the most work. Raises OptionError."""
    able = [each for each in program.kernels if each.schedule is not None]
    if not able:
        why = "; ".join(f"{each.name}: {each.reason}" for each in program.kernels) or "it has no kernels"
        raise OptionError(f"{program.text}: no kernel has a schedule ({why}); expected a program with one")
    if not name:
        return KernelSubject(program, max(able, key=lambda each: (each.flops, each.bytes)))
    for each in program.kernels:
        if name in (each.name, each.key):
            if each.schedule is None:
                raise OptionError(f"{program.text}: kernel {name} has no schedule: {each.reason}")
            return KernelSubject(program, each)
    raise OptionError(f"{program.text}: no kernel {name}; there are: {', '.join(each.name for each in able)}")


def subjects_of(program: LabProgram) -> list[KernelSubject]:
    """All kernels with schedules, those of equal keys once, the most work first."""
    found = {each.key: each for each in program.kernels if each.schedule is not None}
    ordered = sorted(found.values(), key=lambda each: (-each.flops, -each.bytes))
    return [KernelSubject(program, each) for each in ordered]


def expect_legal(subject: KernelSubject, schedule: KernelSchedule) -> None:
    """Raises OptionError if `schedule` is not legal for the kernel."""
    if reasons := subject.reasons(schedule):
        raise OptionError(f"kernel {subject.listed.name} for {subject.listed.target}: illegal schedule: "
                          f"{'; '.join(map(str, reasons))}")


def compile_with(subject: KernelSubject, schedule: KernelSchedule) -> Artifact:
    """The program, compiled with `schedule` for all kernels equal to the subject. Raises CompileError, OptionError."""
    with tempfile.TemporaryDirectory(prefix="motet-lab-") as folder:
        return service.compile(request_with(subject, schedule, Path(folder)))


def request_with(subject: KernelSubject, schedule: KernelSchedule, folder: Path) -> CompileRequest:
    """The request to compile the program with `schedule`, which is written to a file in `folder`."""
    file = folder / "schedules.json"
    listed = subject.listed
    file.write_bytes(encode_schedules([ScheduledKernel(listed.key, listed.target, encode_schedule(schedule))]))
    request = subject.program.request
    return replace(request, options=(*request.options, ("schedules", str(file))))


def device_info(program: LabProgram) -> DeviceInfo:
    """The physical device. Raises DeviceError if it is not there."""
    return find_device(program.device)
