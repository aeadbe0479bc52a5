"""Compares results with an oracle's, for a program or the source stored in an artifact; shared by `run --verify` and
`bench --verify`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from motet.errors import MotetError, OptionError

if TYPE_CHECKING:
    from motet.artifact.sources import KeptSource
    from motet.compiler.service import CompileRequest
    from motet.specs import Array
    from motet.tools.opening import Opened

DEFAULT = "upstream"


def check_options(verify: bool, oracle: str) -> None:
    """Raises OptionError for an unknown oracle, or one without --verify."""
    from motet.compiler.job import ORACLES

    if oracle not in ORACLES:
        raise OptionError(f"--oracle {oracle}: no such oracle; expected one of {', '.join(ORACLES)}")
    if oracle != DEFAULT and not verify:
        raise OptionError(f"--oracle {oracle}: nothing is compared; expected it with --verify")


def check_verifiable(opened: Opened, file: str) -> None:
    """Raises OptionError for an artifact without its source."""
    from motet.artifact.sources import read_source

    if opened.request is None and read_source(opened.artifact) is None:
        raise OptionError(f"{file}: --verify needs the program, which this artifact does not hold; compile it with "
                          "--option keep-source=true, or give MLIR text, ONNX or StableHLO")


def verify(
    opened: Opened, function: str, inputs: Sequence[Array], results: Sequence[Array], oracle: str, err: bool = False
) -> None:
    """Compares `results` of `function` with those of `oracle` on `inputs`, and prints the comparison, on standard error
    if `err`. Raises MotetError if they differ."""
    from motet.artifact.sources import read_source, write_source
    from motet.compiler import service

    kept = None if opened.request is not None else read_source(opened.artifact)
    if opened.request is not None:
        report = service.verify(opened.request, function, list(inputs), list(results), oracle)
    else:
        assert kept is not None  # see check_verifiable
        with tempfile.TemporaryDirectory(prefix="motet-source-") as folder:
            path = write_source(opened.artifact, kept, Path(folder))
            report = service.verify(_request(kept, path), function, list(inputs), list(results), oracle)
    if not report.ok:
        raise MotetError("; ".join(report.lines))
    for line in report.lines:
        typer.echo(f"verified: {line}", err=err)


def _request(kept: KeptSource, path: Path) -> CompileRequest:
    """The request that the artifact was compiled from, as far as it affects results."""
    from motet.compiler.service import CompileRequest
    from motet.compiler.targets.device_flags import parse_device_flags

    return CompileRequest(None, str(path), kept.format, parse_device_flags(kept.devices), cache=False)
