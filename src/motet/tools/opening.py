"""Opens a file, an artifact or a program, as an artifact; shared by `run`, `bench` and `inspect`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from motet.errors import OptionError

if TYPE_CHECKING:
    from motet.artifact.device_flags import DeviceFlag
    from motet.artifact.reader import Artifact
    from motet.artifact.schema import Manifest
    from motet.compiler.service import CompileRequest
    from motet.runtime.session import Session

FORMATS = ("auto", "mlir", "onnx", "openvino", "stablehlo")
STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Opened:
    """An artifact, and the request that it was compiled from if `file` was a program."""

    artifact: Artifact
    request: CompileRequest | None


def is_artifact(file: str) -> bool:
    """Whether a file is an artifact: by its name, or because it is a zip archive, unless it is intact and has no
    manifest, like those of torch.export.

    Raises `OptionError` for a file that cannot be read.
    """
    if file == STANDARD_INPUT:
        return False
    if file.endswith(".motet"):
        return True
    with open_for_reading(file) as stream:
        if stream.read(4) != b"PK\x03\x04":
            return False
        import zipfile

        from motet.artifact.reader import MANIFEST

        try:
            with zipfile.ZipFile(stream) as archive:
                return MANIFEST in archive.namelist()
        except (zipfile.BadZipFile, OSError):
            return True


def open_for_reading(file: str):
    """Opens the file. Raises `OptionError` with the reason if that fails."""
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise OptionError(f"{file}: cannot be read: {reason(error)}; expected an artifact or a program "
                          "(MLIR text, ONNX, StableHLO, OpenVINO's IR)") from None


def reason(error: OSError) -> str:
    """The system's message in lower case."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def make_request(
    file: str, *, format: str = "auto", devices: Sequence[DeviceFlag] = (), options: Sequence[str] = (),
    cache: bool = True, placement: str = "default", places: Sequence[str] = (),
) -> CompileRequest:
    """The request of a command line. Raises `OptionError` for values that do not parse."""
    if format not in FORMATS:
        raise OptionError(f"--format {format}: no such format; expected one of {', '.join(FORMATS)}")
    parsed_options = tuple(_parse_option(option) for option in options)
    if file == STANDARD_INPUT:
        source, path = sys.stdin.buffer.read(), "<stdin>"
        if not source:
            raise OptionError("<stdin>: empty input; expected MLIR or StableHLO text, or an ONNX model")
    else:
        with open_for_reading(file) as stream:  # only a check: the file is read where it is compiled
            source, path = None if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else stream.read(), file
    from motet.compiler.service import CompileRequest

    return CompileRequest(
        source=source, path=path, format=format, devices=tuple(devices), options=parsed_options, cache=cache,
        placement=placement, places=tuple(_parse_place(place) for place in places),
    )


def _parse_place(text: str) -> tuple[str, str]:
    pattern, equals, device = text.rpartition("=")
    if not equals or not pattern or not device:
        raise OptionError(f"--place {text}: expected NAMES=NAME, such as 'layer4*=gpu'")
    return pattern, device


def _parse_option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise OptionError(f"--option {text}: expected KEY=VALUE")
    return key, value


def open_artifact(
    file: str, *, format: str = "auto", devices: Sequence[DeviceFlag] = (), placement: str = "default",
    places: Sequence[str] = (), mesh: str = "", shards: Sequence[str] = (),
) -> Opened:
    """Reads an artifact, or compiles a program for `devices` (device flags)."""
    if is_artifact(file):
        from motet.artifact.reader import Artifact

        if format != "auto":
            raise OptionError(f"--format {format}: {file} is an artifact, which has no format")
        if mesh or shards:
            given = f"--shard {shards[0]}" if shards else f"--mesh {mesh}"
            raise OptionError(f"{given}: {file} is an artifact, which is divided already; compile the program anew")
        if placement != "default" or places:
            given = f"--place {places[0]}" if places else f"--placement {placement}"
            raise OptionError(f"{given}: {file} is an artifact, whose operations are placed; compile the program anew")
        return Opened(Artifact.open(file), None)
    from motet.compiler import service
    from motet.tools.progress import Progress

    request = make_request(file, format=format, devices=devices, placement=placement, places=places)
    request = replace(request, mesh=mesh, shards=tuple(shards))
    with Progress(f"compiling {request.path}") as progress:
        return Opened(service.compile(request, progress.update), request)


def open_bound(
    file: str, *, format: str = "auto", devices: Sequence[str] = (), placement: str = "default",
    places: Sequence[str] = (), mesh: str = "", shards: Sequence[str] = (),
) -> tuple[Opened, dict[str, str]]:
    """Opens `file`; returns with it the physical devices to bind its devices to. `--device` of an artifact names
    physical devices; that of a program may name a target instead, or a physical device, for whose family it is then
    compiled."""
    if is_artifact(file):
        from motet.artifact.device_flags import parse_bindings

        opened = open_artifact(
            file, format=format, placement=placement, places=places, mesh=mesh, shards=shards
        )
        return opened, parse_bindings(devices, _names_in_order(opened.artifact.manifest))
    from motet.compiler.targets.device_flags import parse_device_flags_or_uris

    flags = parse_device_flags_or_uris(devices)
    opened = open_artifact(
        file, format=format, devices=flags, placement=placement, places=places, mesh=mesh, shards=shards
    )
    unnamed = [flag for flag in flags if not flag.name]
    names = _names_in_order(opened.artifact.manifest) if len(unnamed) > 1 else [""]
    bound = [*zip(names, unnamed, strict=False), *((flag.name, flag) for flag in flags if flag.name)]
    return opened, {name: flag.uri for name, flag in bound if flag.uri}


def _names_in_order(manifest: Manifest) -> list[str]:
    """The devices that flags without names bind to, in order: as the program declares them, the default one first."""
    order = sorted(range(len(manifest.devices)), key=lambda index: index != manifest.default_device)
    return [manifest.devices[index].name for index in order]


@dataclass(frozen=True)
class OpenOptions:
    """How files are opened; see `open_bound`."""

    format: str = "auto"
    devices: tuple[str, ...] = ()
    placement: str = "default"
    places: tuple[str, ...] = ()

    def open(self, file: str) -> tuple[Opened, dict[str, str]]:
        return open_bound(
            file, format=self.format, devices=self.devices, placement=self.placement, places=self.places
        )


def start_session(
    file: str, options: OpenOptions, threads: int | None = None, in_flight: int | None = None
) -> tuple[Session, Opened]:
    """Opens `file` and loads it; see `open_bound`. Prints notes about its devices on standard error."""
    opened, bindings = options.open(file)
    return load_opened(opened, bindings, threads, in_flight), opened


def load_opened(
    opened: Opened, bindings: Mapping[str, str], threads: int | None, in_flight: int | None = None
) -> Session:
    """Loads what `open_bound` returned. Prints notes about its devices on standard error."""
    import motet

    session = motet.load(opened.artifact, devices=bindings or None, threads=threads, in_flight=in_flight)
    for note in session.notes:
        typer.echo(f"note: {note}", err=True)
    return session
