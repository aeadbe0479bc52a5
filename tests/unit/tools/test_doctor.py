"""The report of motet doctor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from motet.tools import doctor

SOURCES = Path(__file__).resolve().parents[3] / "src"


@pytest.mark.parametrize("wanted", ["", ">=2.0,<3", "==3.9.*", "==2.13.0", "!=1.5", "~=1.4", ">1", "<=2.1"])
@pytest.mark.parametrize("version", ["1.4", "1.5", "1.5.1", "2.0", "2.0.0", "2.13.0", "3", "3.9.4", "10.0"])
def test_ranges_hold_as_pip_reads_them(version: str, wanted: str) -> None:
    assert doctor._is_in(version, wanted) == (version in SpecifierSet(wanted))


def test_a_package_that_is_missing_is_reported_with_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda _: [
        "numpy>=2", 'motet-lacks-this>=1; extra == "lab"', 'motet[lab]; extra == "search"'])
    assert doctor.run_doctor([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ready    runtime      run artifacts" in lines
    for extra in ("lab", "search"):
        at = next(index for index, line in enumerate(lines) if line.startswith(f"missing  {extra} "))
        assert lines[at + 1].strip() == "motet-lacks-this >=1: not installed"
        assert lines[at + 2].strip() == f"pip install 'motet[{extra}]'"


def test_a_runtime_without_its_packages_is_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda _: ["numpy>=99"])
    assert doctor.run_doctor(["--json"]) == 1
    runtime = json.loads(capsys.readouterr().out)["parts"][0]
    assert not runtime["is_ready"] and runtime["packages"][0]["wanted"] == ">=99"


@pytest.mark.parametrize(("arguments", "status", "said"), [
    (["doctor"], 0, ""),
    (["doctor", "--colour"], 2, "error: doctor: no such option: --colour; expected --json or none\n"),
    (["run", "x"], 1, "error: the commands of motet need typer: pip install 'motet[cli]'; motet doctor shows what is "
                      "installed\n"),
])  # fmt: skip
def test_commands_without_typer(arguments: list[str], status: int, said: str) -> None:
    program = (
        "import sys; sys.modules['typer'] = None\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'typer' else find(name, *rest)\n"
        f"sys.argv = ['motet', *{arguments!r}]\nfrom motet.tools.main import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(SOURCES), "PATH": ""}, text=True,
                          capture_output=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (status, said)
