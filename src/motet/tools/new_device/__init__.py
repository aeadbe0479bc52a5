"""motet new-device: writes the package of a device, with a driver, a family and tests, which works as written."""

from __future__ import annotations

import typer

from motet.tools import new_package

HELP = """Write the package of a new device: a driver, a family, tests.

The package works as written: its device runs kernels in this process. Replace it step by step; the conformance suite
says what is still missing.

\b
Examples:
  motet new-device npu
  motet new-device npu -o ~/src/motet-npu --title "The NPU of a phone"
"""
_FILES = {
    "pyproject.toml": "new_device/pyproject.txt", "README.md": "new_device/readme.txt",
    "src/motet_@NAME@/driver.py": "new_device/driver.txt", "src/motet_@NAME@/family.py": "new_device/family.txt",
    "src/motet_@NAME@/__init__.py": "new_device/package.txt",
    "tests/test_contract.py": "new_device/test_contract.txt",
}  # fmt: skip


def write_device(name: new_package.Name, output: new_package.Output = None, title: new_package.Title = None) -> None:
    folder = new_package.write_package("new-device", _FILES, name, output, title)
    typer.echo(f"{folder}: pip install {folder}; python -m motet.runtime.conformance {name}")
