"""The page of the lab's charts, as a browser shows it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.integration.browser import WIDTHS, is_as_it_was, needs_browser, shown

from motet.lab.display.charts import charts_of
from motet.lab.display.page import page_of
from motet.lab.display.trials import read_trials

WIDE = "<script>document.body.dataset.wide = document.documentElement.scrollWidth - innerWidth;</script></html>"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    rows = [f"{i % 4},{8 * (1 + i % 3)},[{i}],{1e-3 * (2 + math.sin(i))},{0.2 + 0.1 * math.sin(i)},mlir"
            for i in range(40)]
    (tmp_path / "r.csv").write_text("\n".join(["order,i,X,time,peak,backend", *rows, ""]))
    groups = [charts_of(group) for group in read_trials(str(tmp_path / "r.csv"))]
    file = tmp_path / "lab.html"
    file.write_text(page_of("r.csv", groups, [("page", "2026-12-01, on a machine"), ("command", "motet lab display")]))
    return file


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_windows_of_any_width_in_both_themes(page: Path, tmp_path: Path, width: int) -> None:
    measured = tmp_path / "measured.html"
    measured.write_text(page.read_text().replace("</html>", WIDE))
    dom, console = shown(measured, tmp_path / "profile", width)
    assert console == [] and 'data-wide="0"' in dom
    assert "on a machine" in dom and "motet lab display" in dom
    is_as_it_was(page, "lab", width, tmp_path)
