"""Compiles in this process, in half the time of a worker process. A crash ends the child process, which counts as the
case's crash."""

from __future__ import annotations

import tempfile
from pathlib import Path

from motet.artifact.reader import Artifact
from motet.compiler.job import RESULT, Job
from motet.compiler.process.worker import perform


def compile_here(source: bytes, name: str, format: str = "auto", sequences: str = "") -> Artifact:
    """An artifact for this machine's CPU, from a program's bytes or UTF-8 text. `sequences` is the option of that
    name."""
    job = Job("compile", name, source, format in ("mlir", "stablehlo"), format, ("native",), sequences=sequences)
    with tempfile.TemporaryDirectory(prefix="motet-case-") as folder:
        perform(job, Path(folder))
        return Artifact.from_bytes((Path(folder) / RESULT).read_bytes())
