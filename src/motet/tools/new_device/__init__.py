"""motet new-device: writes the package of a device, with a driver, a family and tests, which works as written."""

from __future__ import annotations

import keyword
import re
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from motet.errors import OptionError

HELP = """Write the package of a new device: a driver, a family, tests.

The package works as written: its device runs kernels in this process. Replace it step by step; the conformance suite
says what is still missing.

\b
Examples:
  motet new-device npu
  motet new-device npu -o ~/src/motet-npu --title "The NPU of a phone"
"""
_FILES = {
    "pyproject.toml": "pyproject", "README.md": "readme", "src/motet_@NAME@/driver.py": "driver",
    "src/motet_@NAME@/family.py": "family", "src/motet_@NAME@/__init__.py": "",
    "tests/test_contract.py": "test_contract",
}  # fmt: skip


def write_package(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The family: a-z, 0-9 and _.")],
    output: Annotated[str | None, typer.Option(
        "--output", "-o", metavar="FOLDER", show_default=False, help="A new folder; by default motet-NAME here.",
    )] = None,
    title: Annotated[str | None, typer.Option(
        "--title", metavar="TEXT", show_default=False, help="What the device is called in lists.",
    )] = None,
) -> None:
    from motet.runtime.device import BUILT_IN

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise OptionError(f"new-device: {name!r} given; expected a name of a-z, 0-9 and _, which begins with a letter")
    if name in BUILT_IN:
        raise OptionError(f"new-device: {name} is a family of Motet's own; expected another name")
    if title is not None and not re.fullmatch(r'[^"\\\n@]+', title):
        raise OptionError("new-device: --title: expected one line without quotes, backslashes and @")
    folder = Path(output or f"motet-{name}")
    if folder.exists():
        raise OptionError(f"new-device: {folder} exists; expected a new folder, -o FOLDER")
    values = {"NAME": name, "CLASS": "".join(part.capitalize() for part in name.split("_")) or "Own",
              "TITLE": title or f"the device {name}"}  # fmt: skip
    for file, template in _FILES.items():
        path = folder / _filled(file, values)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = resources.files(__name__).joinpath(f"{template}.txt").read_text("utf-8") if template else _PACKAGE
        path.write_text(_filled(text, values), encoding="utf-8")
    typer.echo(f"{folder}: pip install {folder}; python -m motet.runtime.conformance {name}")


_PACKAGE = '"""@TITLE@, a device for Motet."""\n'


def _filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"@([A-Z]+)@", lambda match: values[match[1]], text)
