"""motet export: exports a function for one target, as firmware or as C to be linked into other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motet.errors import OptionError
from motet.tools import arguments

if TYPE_CHECKING:
    from motet.artifact.schema import Alternative
    from motet.exporting.static import StaticFunction

HELP = """Export a function so that it runs without Motet.

elf is firmware for the RISC-V accelerator or an embedded device: one file with the program, its constants and a static
memory plan, which computes when the cores start. bin and hex (Intel HEX) are the same for embedded devices. c is a
folder of C and objects to link, for any target; for opencl, C that calls OpenCL with the caller's context, queue,
arguments and events.

\b
Examples:
  motet export model.motet --target riscv --format elf -o model.elf
  motet export model.onnx --target riscv:rv64gc --format elf --input 1x3x224x224xf32=random:1
  motet export model.mlir --target 'embedded{cpu=cortex-m55}' --format hex -o model.hex
  motet export model.motet --target x86-64-v3 --format c -o model/
  motet export model.mlir --target opencl:spirv64 --format c -o model/
"""

FORMATS = ("elf", "bin", "hex", "c")
_MEMORY = 64


# The parameters of this function are the options of `motet export`, read by typer.
def export_function(
    file: arguments.Runnable,
    target: Annotated[str, typer.Option(
        metavar="TARGET",
        help="What to take the code for: riscv, riscv:rv64gcv256, embedded{cpu=cortex-m55}, host, x86-64-v3, …",
    )],
    format: Annotated[str, typer.Option(metavar="elf|bin|hex|c", help="What to make.")],
    output: Annotated[str | None, typer.Option(
        "--output", "-o", metavar="OUT", show_default=False,
        help="The file, or folder (c), to write; by default named after FILE in the current folder.",
    )] = None,
    function: arguments.Function = None,
    extent: Annotated[list[str] | None, typer.Option(
        metavar="NAME=N", show_default=False,
        help="The value of a dynamic extent. May be given several times.",
    )] = None,
    input: arguments.Inputs = None,
    harts: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="elf: how many cores will start.")] = 1,
    memory: Annotated[int, typer.Option(metavar="MIB", min=40, help="elf: the machine's memory.")] = _MEMORY,
    machine: Annotated[str | None, typer.Option(
        metavar="NAME", show_default=False, help="embedded: the machine, such as mps3-an547; default: by processor.",
    )] = None,
) -> None:
    if format not in FORMATS:
        raise OptionError(f"--format {format}: expected one of {', '.join(FORMATS)}")
    if format == "c" and input:
        raise OptionError("--input: of no use to C, which is given its inputs by its caller")
    static = _static(file, target, function, extent or [])
    name = _stem(file)
    if static.variant.family == "embedded" and format != "c":
        _write_image(static, machine, format, input or [], Path(output or f"{name}.{format}"))
    elif format in ("bin", "hex"):
        raise OptionError(f"--format {format}: code for {static.variant.family}; expected the family embedded")
    elif format == "elf":
        _write_firmware(static, harts, memory << 20, input or [], Path(output or f"{name}.elf"))
    else:
        _write_c(static, Path(output or name))


def _static(file: str, target: str, function: str | None, extents: list[str]) -> StaticFunction:
    from motet.compiler.targets.device_flags import parse_device_flags
    from motet.exporting.static import find_variant, make_static
    from motet.tools.opening import is_artifact, open_artifact
    from motet.tools.run import choose_function

    expression = _device(target)
    flags = parse_device_flags([expression])
    if "{" in target:
        target = _target_of(flags[0].alternatives[0], expression)
    devices = () if is_artifact(file) else flags
    artifact = open_artifact(file, devices=devices).artifact
    hidden = artifact.functions.get(function or "")  # for example initial states, which callers of C set themselves
    name = choose_function(artifact.callable_functions, function, file).name if hidden is None else hidden.name
    signature = artifact.functions[name]
    return make_static(artifact, signature, find_variant(artifact, target), dict(map(_extent, extents)))


def _device(target: str) -> str:
    """The device expression of a target: `riscv`, `riscv:rv64gc`, `riscv{cpu=rv64gc}`; targets of the host are given
    without family."""
    from motet.compiler.targets.families import families

    if "{" in target:
        return target
    family, colon, name = target.partition(":")
    if colon:
        return f"{family}{{cpu={name}}}"
    return family if family in families() else f"host{{cpu={family}}}"


def _target_of(alternative: Alternative, where: str) -> str:
    """The full name of the first target that a device expression requests."""
    from motet.artifact.device_flags import options_of
    from motet.compiler.targets.families import target_names

    names = target_names(alternative.family, options_of(alternative), where)
    if not names:
        raise OptionError(f"--target {where}: no family {alternative.family} with code")
    return names[0]


def _extent(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not equals or not value.isdecimal():
        raise OptionError(f"--extent {text}: expected NAME=N")
    return name, int(value)


def _stem(file: str) -> str:
    from motet.exporting.c_source import identifier

    return identifier(Path(file).name.split(".")[0])


def _write_firmware(static: StaticFunction, harts: int, memory: int, inputs: list[str], path: Path) -> None:
    from motet.exporting.firmware import export_firmware
    from motet.specs import parse_spec
    from motet.tools.show import show_bytes

    firmware = export_firmware(static, harts, memory, [parse_spec(text) for text in inputs])
    _write(path, firmware.image)
    typer.echo(f"{path}: {show_bytes(len(firmware.image))}, for {harts} harts with {memory >> 20} MiB")
    for name, address in firmware.symbols.items():
        typer.echo(f"  {address:#010x}  {name}")


def _write_image(static: StaticFunction, machine: str | None, format: str, inputs: list[str], path: Path) -> None:
    from motet.exporting.embedded_image import export_image, machine_for
    from motet.specs import parse_spec
    from motet.tools.show import show_bytes

    flash = export_image(static, machine_for(static, machine), [parse_spec(text) for text in inputs])
    content = flash.file(format)
    _write(path, content)
    typer.echo(f"{path}: {show_bytes(len(content))}, for {flash.machine}: {flash.sizes}")
    for name, address in sorted(flash.symbols.items()):
        if name not in flash.image.library:
            typer.echo(f"  {address:#010x}  {name}")


def _write_c(static: StaticFunction, folder: Path) -> None:
    from motet.exporting.c_source import export_c, identifier
    from motet.exporting.opencl_source import FAMILY, export_opencl

    export = export_opencl if static.variant.family == FAMILY else export_c
    sources = export(static, identifier(folder.name))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"{folder}: cannot be made: {error.strerror}") from None
    for name, content in sources.files.items():
        _write(folder / name, content)
    typer.echo(f"{folder}: {', '.join(sources.files)}")


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OptionError(f"{path}: cannot be written: {error.strerror}") from None
