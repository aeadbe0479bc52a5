"""What `run`, `bench` and `inspect` share: a file, be it an artifact or a program, opened as an artifact."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from motet.errors import OptionError

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.compiler.service import CompileRequest
    from motet.runtime.session import Session

FORMATS = ("auto", "mlir", "onnx", "stablehlo")
STANDARD_INPUT = "-"


@dataclass(frozen=True)
class Opened:
    """An artifact, and the request it was compiled by where `file` was a program."""

    artifact: Artifact
    request: CompileRequest | None


def is_artifact(file: str) -> bool:
    """Whether a file is meant as an artifact: by its name, or by what it begins with (a zip's signature).

    Raises `OptionError` for a file that cannot be read.
    """
    if file == STANDARD_INPUT:
        return False
    if file.endswith(".motet"):
        return True
    with open_for_reading(file) as stream:
        return stream.read(4) == b"PK\x03\x04"


def open_for_reading(file: str):
    """The file, opened; `OptionError` says why not."""
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise OptionError(f"{file}: cannot be read: {reason(error)}; expected an artifact or a program "
                          "(MLIR text, ONNX, StableHLO)") from None


def reason(error: OSError) -> str:
    """What the system says, in our lower case."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def make_request(
    file: str, *, format: str = "auto", devices: Sequence[str] = (), options: Sequence[str] = (),
    cache: bool = True,
) -> CompileRequest:
    """The request that a command line stands for; `OptionError` for what of it does not parse."""
    from motet.compiler.targets.device_flags import parse_device_flags

    if format not in FORMATS:
        raise OptionError(f"--format {format}: no such format; expected one of {', '.join(FORMATS)}")
    parsed_devices = tuple((flag.name, flag.expression) for flag in parse_device_flags(devices))
    parsed_options = tuple(_parse_option(option) for option in options)
    if file == STANDARD_INPUT:
        source, path = sys.stdin.buffer.read(), "<stdin>"
    else:
        with open_for_reading(file) as stream:
            source, path = stream.read(), file
    from motet.compiler.service import CompileRequest

    return CompileRequest(
        source=source, path=path, format=format, devices=parsed_devices, options=parsed_options, cache=cache
    )


def _parse_option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise OptionError(f"--option {text}: expected KEY=VALUE")
    return key, value


def open_artifact(file: str, *, format: str = "auto", devices: Sequence[str] = ()) -> Opened:
    """Read an artifact, or compile a program for `devices` (device flags)."""
    if is_artifact(file):
        from motet.artifact.reader import Artifact

        if format != "auto":
            raise OptionError(f"--format {format}: {file} is an artifact, which has no format")
        return Opened(Artifact.open(file), None)
    from motet.compiler import service
    from motet.tools.progress import Progress

    request = make_request(file, format=format, devices=devices)
    with Progress(f"compiling {request.path}") as progress:
        return Opened(service.compile(request, progress.update), request)


def start_session(
    file: str, *, format: str = "auto", devices: Sequence[str] = (), threads: int | None = None
) -> tuple[Session, Opened]:
    """Open `file` and load it. Device flags name targets for a program, physical devices for an artifact."""
    from motet import runtime

    opened = open_artifact(file, format=format, devices=devices)
    bound = _bindings(devices) if opened.request is None else None
    return runtime.load(opened.artifact, devices=bound, threads=threads), opened


def _bindings(devices: Sequence[str]) -> dict[str, str] | None:
    """`--device NAME=PHYSICAL` of an artifact; one without a name stands for all devices."""
    bindings: dict[str, str] = {}
    for text in devices:
        name, equals, physical = text.rpartition("=")
        if name in bindings:
            raise OptionError(f"--device {text}: the name '{name}' is given twice; expected each name once")
        if not physical or (equals and not name):
            raise OptionError(f"--device {text}: expected NAME=PHYSICAL, such as gpu=cuda:0")
        bindings[name] = physical
    return bindings or None
