"""The kernel of an artifact as a microkernel: its object, written as assembly, and how it is called.

    one function, one command       inputs A, B, C, result C'     →     a kernel that takes the addresses of A, B, C, C'
"""

from __future__ import annotations

from motet.artifact.reader import Artifact
from motet.artifact.schema import Schedule, Signature, Variant
from motet.compiler.kernels.microkernel_code import Microkernel
from motet.compiler.targets.cpu import CpuTarget, bases_of
from motet.errors import MotetError, OptionError
from motet.lab.microkernels.definition import MicrokernelFile
from motet.runtime.drivers.common.elf import objects as elf
from motet.runtime.drivers.common.elf.relocations import MACHINES
from motet.runtime.drivers.common.elf.structures import SHN_UNDEF

_LINE = 16  # bytes of a line of assembly


def of_artifact(file: MicrokernelFile, target: CpuTarget) -> Microkernel:
    """The kernel of the artifact that `file` names, for `target`. Raises OptionError for one that cannot be called from
    a nest, with what is expected."""
    where = f"microkernel {file.path}: {file.code.name}"
    try:
        artifact = Artifact.open(file.code)
    except MotetError as error:
        raise OptionError(f"microkernel {file.path}: {error}") from None
    variant = _variant(artifact, target, where)
    name, signature = _function(artifact, variant, file, where)
    schedule = variant.schedules[name]
    command = schedule.commands[0]
    _expect_operands(file, signature, where)
    if not isinstance(command.tasks, int) or command.sizes:
        raise OptionError(f"{where}: function {name} has dynamic extents; expected fixed ones")
    missing = [dim for dim in file.parsed.dims if dim not in file.sizes]
    if missing:
        raise OptionError(f"microkernel {file.path}: sizes: {', '.join(missing)} have none; expected one for each "
                          "dimension, since the kernel of an artifact has fixed extents")
    object_name = _object_of(artifact, variant, command.kernel, where)
    code = _assembly(elf.read_object(artifact.member(object_name), object_name), command.kernel, where)
    return Microkernel(
        file.name, file.meaning, file.dtypes, file.sizes, "assembly", code, command.kernel,
        f"{target.family}:{variant.target}", "tasks", command.tasks, schedule.scratch,
        _buffers(schedule, list(file.dtypes)),
    )


def _variant(artifact: Artifact, target: CpuTarget, where: str) -> Variant:
    own = (target.name, *bases_of(target))
    for name in own:
        for variant in artifact.manifest.variants:
            if (variant.family, variant.target) == (target.family, name):
                if not variant.triple.startswith("x86_64"):
                    raise OptionError(f"{where}: a kernel for {variant.triple}; expected one for x86-64, C or LLVM IR")
                return variant
    known = ", ".join(f"{each.family}:{each.target}" for each in artifact.manifest.variants) or "none"
    raise OptionError(f"{where}: it has code for {known}; expected {' or '.join(f'{target.family}:{n}' for n in own)}")


def _function(
    artifact: Artifact, variant: Variant, file: MicrokernelFile, where: str
) -> tuple[str, Signature]:
    """The function that consists of the kernel."""
    able = {
        name: schedule for name, schedule in variant.schedules.items()
        if len(schedule.commands) == 1 and schedule.commands[0].op == "dispatch"
        and all(each.kind in ("input", "result") for each in schedule.buffers)
    }
    chosen = [name for name, each in able.items() if file.kernel in ("", name, each.commands[0].kernel)]
    if len(chosen) != 1:
        listed = ", ".join(f"{name} ({each.commands[0].kernel})" for name, each in able.items()) or "none"
        what = f"kernel {file.kernel}" if file.kernel else f"{len(able)} functions of one kernel without parameters"
        raise OptionError(f"{where}: {what}; expected kernel: NAME, one of {listed}")
    return chosen[0], artifact.functions[chosen[0]]


def _expect_operands(file: MicrokernelFile, signature: Signature, where: str) -> None:
    """Check the types and shapes of the function's tensors against the operands of the file, in their order."""
    meaning = file.parsed
    names, result = list(file.dtypes), meaning.operands[-1]
    wanted: list[tuple[str, list[int], str]] = []
    for name in [*names, result]:
        access = meaning.accesses[meaning.operands.index(name)]
        shape = [1 + sum(c * (file.sizes.get(meaning.dims[d], 1) - 1) for d, c in e.terms) for e in access.map]
        wanted.append((name, shape, file.dtypes[name]))
    found = [*signature.inputs, *signature.results]
    shown = ", ".join("x".join(map(str, [*shape, dtype])) for _, shape, dtype in wanted)
    if [(each.shape, each.dtype) for each in found] != [(shape, dtype) for _, shape, dtype in wanted]:
        given = ", ".join("x".join(map(str, [*each.shape, each.dtype])) for each in found)
        raise OptionError(f"{where}: function {signature.name} has {given}; expected {shown}: the operands "
                          f"{', '.join(names)} as inputs, and {result} as the result")


def _buffers(schedule: Schedule, names: list[str]) -> list[str]:
    """The operand that each buffer of the command is; "" for the result."""
    found = [schedule.buffers[number] for number in schedule.commands[0].buffers]
    return [names[each.index] if each.kind == "input" else "" for each in found]


def _object_of(artifact: Artifact, variant: Variant, symbol: str, where: str) -> str:
    for name in variant.objects:
        item = elf.read_object(artifact.member(name), name)
        if any(each.name == symbol and each.section != SHN_UNDEF for each in item.symbols):
            return name
    raise OptionError(f"{where}: no object defines {symbol}")


# -- objects as assembly -----------------------------------------------------------------------------


def _assembly(item: elf.Object, symbol: str, where: str) -> str:
    """Assembly with the bytes, symbols and relocations of an object; `symbol` keeps its name."""
    lines: list[str] = []
    for number, section in item.sections.items():
        if section.flags & elf.SHF_WRITE or section.zero:
            raise OptionError(f"{where}: its code has variables in {section.name}; expected none")
        kind = "ax" if section.flags & elf.SHF_EXECINSTR else "a"
        lines.append(f'\t.section .text.micro{number},"{kind}",@progbits')
        lines.append(f"\t.p2align {section.alignment.bit_length() - 1}")
        marks = {each.value: each.name for each in item.symbols if each.section == number and each.name == symbol}
        lines.append(f".Lsection{number}:")
        lines += _bytes(bytes(section.data), marks)
        for each in item.relocations.get(number, []):
            lines.append(_relocation(item, number, each, where))
    return "\n".join([*lines, "\t.text", ""])


def _bytes(data: bytes, marks: dict[int, str]) -> list[str]:
    lines: list[str] = []
    cuts = sorted({*range(0, len(data), _LINE), *marks, len(data)})
    for begin, end in zip(cuts, [*cuts[1:], len(data)], strict=True):
        lines += [f"{marks[begin]}:"] if begin in marks else []
        lines += ["\t.byte " + ",".join(map(str, data[begin:end]))] if end > begin else []
    return lines


def _relocation(item: elf.Object, number: int, entry: elf.Relocation, where: str) -> str:
    target = item.symbols[entry.symbol]
    kind = MACHINES["x86_64"].kinds.get(entry.type)
    if kind is None:
        raise OptionError(f"{where}: a relocation of type {entry.type}, which is not supported")
    place = target.name if target.section == SHN_UNDEF else f".Lsection{target.section}"
    offset = entry.addend + (0 if target.section == SHN_UNDEF else target.value)
    return f"\t.reloc .Lsection{number}+{entry.offset}, {kind.name}, {place}{offset:+d}"

