"""Writes packages of plug-ins from templates: the part that `motet new-device` and `motet new-codegen` share."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from motet.errors import OptionError

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The family: a-z, 0-9 and _.")]
Output = Annotated[str | None, typer.Option(
    "--output", "-o", metavar="FOLDER", show_default=False, help="A new folder; by default motet-NAME here.",
)]
Title = Annotated[str | None, typer.Option(
    "--title", metavar="TEXT", show_default=False, help="What the device is called in lists.",
)]
_TEMPLATES = "motet.tools"


def write_package(
    command: str, files: Mapping[str, str], name: str, output: str | None, title: str | None
) -> Path:
    """Write the package that `command` makes for the family `name`: `files` are templates, by the file made of each.
    Returns the folder. Raises OptionError."""
    from motet.compiler.codegen.backends import BUILT_IN as GENERATORS
    from motet.compiler.targets.families import built_in_families

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise OptionError(f"{command}: {name!r} given; expected a name of a-z, 0-9 and _, which begins with a letter")
    if (is_family := name in built_in_families()) or name in GENERATORS:
        kind = "family" if is_family else "code generator"
        raise OptionError(f"{command}: {name} is a {kind} of Motet's own; expected another name")
    if title is not None and not re.fullmatch(r'[^"\\\n@]+', title):
        raise OptionError(f"{command}: --title: expected one line without quotes, backslashes and @")
    folder = Path(output or f"motet-{name}")
    if folder.exists():
        raise OptionError(f"{command}: {folder} exists; expected a new folder, -o FOLDER")
    values = {"NAME": name, "CLASS": "".join(part.capitalize() for part in name.split("_")) or "Own",
              "TITLE": title or f"the device {name}"}  # fmt: skip
    for file, template in files.items():
        path = folder / _filled(file, values)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = resources.files(_TEMPLATES).joinpath(template).read_text("utf-8")
        path.write_text(_filled(text, values), encoding="utf-8")
    return folder


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"@([A-Z]+)@", lambda match: values[match[1]], text)
