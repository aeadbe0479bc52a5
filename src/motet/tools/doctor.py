"""motet doctor: what is installed, what is missing, and how to get it. Needs neither typer nor any optional package."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

HELP = """Show what is installed, what is missing, and the command that installs it.

Exit status 0 if artifacts can be run; 1 if something that this needs is missing or has another version.

\b
Examples:
  motet doctor
  motet doctor --json
"""
# What each extra is for; extras that pyproject.toml has for developers are left out.
PURPOSES = {
    "cli": "the other commands of motet",
    "compile": "compile MLIR and StableHLO for processors",
    "onnx": "compile ONNX models",
    "torch": "compile PyTorch modules; torch.compile",
    "openvino": "compile OpenVINO models; run in its pipelines",
    "onnxruntime": "run in sessions of onnxruntime",
    "llm": "compile language models, generate text",
    "gpu": "compile for GPUs",
    "cuda": "run on NVIDIA GPUs",
    "cublas": "products by cuBLASLt",
    "serve": "serve models over HTTP",
    "mpi": "run over several processes",
    "lab": "schedules as text",
    "search": "search for schedules",
}
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?\s*([^;]*)")
_EXTRA = re.compile(r"""extra == ['"]([^'"]+)['"]""")


@dataclass(frozen=True)
class InstalledPackage:
    """A package that Motet needs: the installed version, "" for none; `is_suitable` if the version is in the range."""

    package: str
    wanted: str
    version: str
    is_suitable: bool


@dataclass(frozen=True)
class InstalledPart:
    """What an extra is for, and its packages; extra "" has those that every artifact needs."""

    extra: str
    purpose: str
    packages: list[InstalledPackage]

    @property
    def is_ready(self) -> bool:
        return all(found.is_suitable for found in self.packages)

    @property
    def command(self) -> str:
        """The command that installs it."""
        return f"pip install 'motet[{self.extra}]'" if self.extra else "pip install --force-reinstall motet"


def run_doctor(arguments: Sequence[str]) -> int:
    """Print the report, as JSON for `--json`; returns the exit status."""
    if unknown := [each for each in arguments if each not in ("--json", "--help")]:
        print(f"error: doctor: no such option: {unknown[0]}; expected --json or none", file=sys.stderr)
        return 2
    if "--help" in arguments:
        print(f"Usage: motet doctor [--json]\n\n{HELP}".replace("\b\n", ""))
        return 0
    parts = list(examine())
    if "--json" in arguments:
        print(json.dumps({"version": 1, "python": platform.python_version(), "cache": _cache(), "parts": [
            {**asdict(part), "is_ready": part.is_ready, "command": part.command} for part in parts
        ], "devices": _devices()}, indent=2))  # fmt: skip
    else:
        print("\n".join(_lines(parts)))
    return 0 if parts[0].is_ready else 1


def examine() -> Iterator[InstalledPart]:
    """The parts of Motet, the runtime first, as its metadata lists them."""
    try:
        requirements = importlib.metadata.requires("motet") or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    by_extra: dict[str, list[tuple[str, str, str]]] = {}
    for requirement in requirements:
        match, extra = _REQUIREMENT.match(requirement), _EXTRA.search(requirement)
        if match:
            name, inner, wanted = match.groups()
            by_extra.setdefault(extra[1] if extra else "", []).append((name, inner or "", wanted.strip(" ()")))
    yield InstalledPart("", "run artifacts", _packages("", by_extra))
    for extra, purpose in PURPOSES.items():
        if extra in by_extra:
            yield InstalledPart(extra, purpose, _packages(extra, by_extra))


def advice(module: str) -> str:
    """How to install the package with `module`: the first extra that has it."""
    for part in examine():
        if any(found.package.replace("-", "_").lower() == module for found in part.packages):
            return f"install it with: {part.command}"
    return "motet doctor shows what is missing"


def _packages(extra: str, by_extra: dict[str, list[tuple[str, str, str]]]) -> list[InstalledPackage]:
    """The packages of an extra, with those of the extras that it includes."""
    found: dict[str, InstalledPackage] = {}
    for name, inner, wanted in by_extra.get(extra, []):
        if name == "motet":
            for each in inner.split(","):
                found.update({package.package: package for package in _packages(each.strip(), by_extra)})
        else:
            version = _version(name)
            found[name] = InstalledPackage(name, wanted, version, bool(version) and _is_in(version, wanted))
    return list(found.values())


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _is_in(version: str, wanted: str) -> bool:
    """Whether a version is in a range such as `>=2.0,<3`. Compares the numbers of releases."""
    for operator, bound in re.findall(r"(==|>=|<=|<|>|!=|~=)\s*([\w.*+]+)", wanted):
        digits = _numbers(bound)
        own = _numbers(version)
        width = max(len(own), len(digits))
        prefix = own[: len(digits)] == digits
        own, digits = [*own, *[0] * (width - len(own))], [*digits, *[0] * (width - len(digits))]
        holds = {
            "==": prefix if bound.endswith("*") else own == digits, "!=": own != digits, ">=": own >= digits,
            "<=": own <= digits, "<": own < digits, ">": own > digits,
            "~=": own >= digits and own[: len(_numbers(bound)) - 1] == digits[: len(_numbers(bound)) - 1],
        }[operator]
        if not holds:
            return False
    return True


def _numbers(version: str) -> list[int]:
    """The numbers at the beginning of a version."""
    match = re.match(r"\d+(\.\d+)*", version)
    return [int(part) for part in match[0].split(".")] if match else []


def _lines(parts: Sequence[InstalledPart]) -> Iterator[str]:
    from motet.version import VERSION

    yield f"motet {VERSION}, Python {platform.python_version()}, {platform.system()} on {platform.machine()}"
    yield f"cache: {_cache()}"
    for part in parts:
        state = "ready  " if part.is_ready else "missing"
        yield f"{state}  {part.extra or 'runtime':12} {part.purpose}"
        for found in part.packages:
            if not found.is_suitable:
                there = f"{found.version} is installed" if found.version else "not installed"
                yield f"             {found.package} {found.wanted}: {there}".rstrip()
        if not part.is_ready:
            yield f"             {part.command}"
    if not parts[0].packages:
        yield "missing  runtime      the package's metadata; pip install motet, or pip install -e . in a checkout"
    yield from _devices()


def _cache() -> str:
    from motet.cache import default_directory

    folder = default_directory()
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    return f"{folder}{'' if os.access(nearest, os.W_OK) else ', which cannot be written; set MOTET_CACHE_DIR'}"


def _devices() -> list[str]:
    """A line for each device, present or not; one line if the runtime's packages are missing."""
    try:
        from motet.runtime.device import devices

        return [f"{'modelled' if info.is_modelled else 'device  '} {info.uri}" if info.available else
                f"absent   {info.uri or info.name}: {info.reason}" for info in devices()]  # fmt: skip
    except ImportError as error:
        return [f"devices: not known: {error}"]
