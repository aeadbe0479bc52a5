"""motet new-codegen: writes the package of a code generator, with a device and tests, which works as written."""

from __future__ import annotations

import typer

from motet.tools import new_package

HELP = """Write the package of a new code generator: a back end, a family, a driver, tests.

The package works as written: it makes C of element-wise kernels, which cc compiles, and its device runs them in this
process. Replace it step by step; the tests say what is still missing.

\b
Examples:
  motet new-codegen npu
  motet new-codegen npu -o ~/src/motet-npu --title "The NPU of a phone"
"""
_FILES = {
    "pyproject.toml": "new_codegen/pyproject.txt", "README.md": "new_codegen/readme.txt",
    "src/motet_@NAME@/generator.py": "new_codegen/generator.txt",
    "src/motet_@NAME@/c_text.py": "new_codegen/c_text.txt", "src/motet_@NAME@/driver.py": "new_codegen/driver.txt",
    "src/motet_@NAME@/family.py": "new_codegen/family.txt",
    "src/motet_@NAME@/__init__.py": "new_device/package.txt",
    "tests/test_contract.py": "new_device/test_contract.txt", "tests/test_programs.py": "new_codegen/test_programs.txt",
}  # fmt: skip


def write_codegen(name: new_package.Name, output: new_package.Output = None, title: new_package.Title = None) -> None:
    folder = new_package.write_package("new-codegen", _FILES, name, output, title)
    typer.echo(f"{folder}: pip install {folder}; motet devices; python -m pytest {folder}/tests")
