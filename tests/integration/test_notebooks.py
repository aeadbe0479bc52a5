"""Notebooks of `examples/` run from top to bottom, and are kept without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))


def cells(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    return notebook["cells"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_code_cells_run_in_order(name: str) -> None:
    code = [cell for cell in cells(name) if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code):
        exec(compile("".join(cell["source"]), f"{name}, code cell {number}", "exec"), names)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_have_names_of_their_own(name: str) -> None:
    identifiers = [cell["id"] for cell in cells(name)]
    assert len(set(identifiers)) == len(identifiers)
    assert {cell["cell_type"] for cell in cells(name)} <= {"code", "markdown"}
