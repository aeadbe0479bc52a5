"""The schedules, steps and errors that docs/lab.md shows are what the lab does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.compiler.kernels.linalg_texts import kernel_of

from motet.errors import ScheduleError
from motet.lab.language import parse_schedule

pytest.importorskip("yaml")

PAGE = (Path(__file__).parents[3] / "docs" / "lab.md").read_text()
KERNEL = kernel_of("i,k ; k,j -> i,j", {"i": 48, "j": 64, "k": 80})


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_text_and_steps_give_one_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = [each for each in blocks("yaml") if "parallelize" in each][:1]
    (code,) = [each for each in blocks("python") if "s = schedule(kernel)" in each]
    exec(compile(code, "docs/lab.md", "exec"), {"kernel": KERNEL})
    assert parse_schedule(capsys.readouterr().out, KERNEL) == parse_schedule(text, KERNEL)


@pytest.mark.parametrize("text", [
    '{"k": {"parallelize"}, "i": {}, "j": {}}', '{"i": {}, "j": {"vectorize"}, "k": {}}',
    '{"i": {}, "j": {}, "k": {}, "i#4": {}, "i#8": {}}',
])
def test_errors_are_those_of_the_page(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_schedule(text, KERNEL)
    assert str(caught.value) in PAGE
