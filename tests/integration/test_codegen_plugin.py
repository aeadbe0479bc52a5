"""Code generators of other distributions: the example, installed and used; and plug-ins that are broken or missing."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import ROOT, environment
from tests.integration.installed import install_example

PLUGIN = ROOT / "examples" / "codegen_plugin"
DEVICES = ["--device", "acc=abacus,@cpu", "--device", "cpu=host"]

Command = Callable[..., subprocess.CompletedProcess[str]]


def run(*arguments: str | Path, site: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS` where the distributions in `site` are installed besides this tree."""
    environ = environment()
    environ["PYTHONPATH"] = os.pathsep.join([environ["PYTHONPATH"], str(site)])
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, env=environ, text=True, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=240,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example was installed as its users would."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    return install_example(PLUGIN, tmp_path_factory.mktemp("codegen"))


@pytest.fixture
def python(site: Path, tmp_path: Path) -> Command:
    """Runs `python ARGUMENTS` with the example installed."""

    def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return run(*arguments, site=site, folder=tmp_path)

    return command


# -- the example ---------------------------------------------------------------------------------------

PROGRAM = """
func.func @main(%x: tensor<?x7xf32>, %w: tensor<7x9xf32>) -> tensor<?x9xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x7xf32>
  %in = tensor.empty(%n) : tensor<?x7xf32>
  %empty = tensor.empty(%n) : tensor<?x9xf32>
  %tanh = linalg.tanh ins(%x : tensor<?x7xf32>) outs(%in : tensor<?x7xf32>) -> tensor<?x7xf32>
  %clear = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x9xf32>) -> tensor<?x9xf32>
  %product = linalg.matmul ins(%tanh, %w : tensor<?x7xf32>, tensor<7x9xf32>) outs(%clear : tensor<?x9xf32>)
    -> tensor<?x9xf32>
  %result = linalg.exp ins(%product : tensor<?x9xf32>) outs(%empty : tensor<?x9xf32>) -> tensor<?x9xf32>
  return %result : tensor<?x9xf32>
}
"""

RUN = """
import json
import numpy as np, motet
artifact = motet.compile("program.mlir", devices={"acc": "abacus,@cpu", "cpu": "host"}, cache=False)
manifest = artifact.manifest
names = [device.name for device in manifest.devices]
print(json.dumps([names[step.device] for step in manifest.plans["main"].steps if step.op == "run"]))
random = np.random.default_rng(3)
x, w = random.standard_normal((13, 7)).astype("f4"), random.standard_normal((7, 9)).astype("f4")
expected = np.exp(np.tanh(x.astype("f8")) @ w.astype("f8"))
with motet.load(artifact) as session:
    np.testing.assert_allclose(np.asarray(session(x, w)), expected, rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(session(x[:0], w)), expected[:0])
print(sorted(member.rpartition("/")[0] for member in manifest.members if "abacus" in member and member.endswith(".o")))
"""


def test_element_wise_kernels_run_on_the_device_and_others_on_the_host(python: Command, tmp_path: Path) -> None:
    (tmp_path / "program.mlir").write_text(PROGRAM)
    outcome = python("-c", RUN)
    assert outcome.returncode == 0, outcome.stderr
    steps, members = outcome.stdout.splitlines()
    assert steps == '["acc", "cpu"]'  # what follows the product stays where that lies
    assert members == "['executables/abacus/c']"


def test_its_device_is_checked_with_code(python: Command) -> None:
    """The kernels of the checks are made for the processor that the target names, programs by the code generator."""
    checks = ("tasks-run-65", "floats-of-subnormal", "obstacles", "profile-of-launch", "unknown-option",
              "allocate-too-much", "elements-i64")  # fmt: skip
    only = [word for check in checks for word in ("--only", check)]
    outcome = python("-m", "motet.runtime.conformance", "abacus", *only)
    assert outcome.stdout.splitlines()[-1] == f"abacus: {len(checks)} passed, 0 failed, 0 skipped", outcome.stdout


@pytest.mark.slow
def test_its_device_keeps_to_the_contract(python: Command) -> None:
    outcome = python("-m", "motet.runtime.conformance", "abacus")
    assert outcome.returncode == 0, outcome.stdout
    skipped = [line for line in outcome.stdout.splitlines() if " skip " in line]
    assert len(skipped) < 40 and "takes the code of no target" not in outcome.stdout


def test_what_it_does_not_support_is_refused_by_name(python: Command, tmp_path: Path) -> None:
    (tmp_path / "program.mlir").write_text(PROGRAM)
    [line] = python("-m", "motet", "compile", "program.mlir", "--device", "abacus").stderr.splitlines()
    assert "no code can be made for abacus devices: a reduction; place it elsewhere: abacus,@cpu" in line


def test_the_commands_of_the_guide_run_as_printed(python: Command, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "codegen.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    [program] = [block for language, block in blocks if language == "mlir"]
    (tmp_path / "program.mlir").write_text(program)
    lines = [line for _, block in blocks for line in block.splitlines() if line.startswith("motet ")]
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    assert len(commands) == 5
    printed = ""
    for words in commands:
        outcome = python("-m", "motet", *words)
        assert outcome.returncode == 0, outcome.stderr
        printed += outcome.stdout
    numbers = [float(word) for word in re.findall(r"\d+\.\d+(?=[,\]])", printed)]
    np.testing.assert_allclose(numbers, np.full(4 * 9, np.exp(7 * 0.25 * np.tanh(0.5))), rtol=1e-5)
    assert 'motet.device = "acc"' in printed and 'motet.device = "cpu"' in printed


SCALARS = """
#m = affine_map<(i) -> (i)>
func.func @main(%x: tensor<8xTYPE>, %y: tensor<8xTYPE>) -> tensor<8xTYPE> {
  %e = tensor.empty() : tensor<8xTYPE>
  %r = linalg.generic {indexing_maps = [#m, #m, #m], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<8xTYPE>, tensor<8xTYPE>) outs(%e : tensor<8xTYPE>) {
  ^bb0(%a: TYPE, %b: TYPE, %o: TYPE):
    %v = OPERATION : TYPE
    linalg.yield %v : TYPE
  } -> tensor<8xTYPE>
  return %r : tensor<8xTYPE>
}
"""

COMPARE = """
import sys, numpy as np, motet
x = np.array([0.0, -0.0, 1.5, -2.5, np.nan, np.inf, -np.inf, 3.0], sys.argv[1])
y = np.array([-0.0, 0.0, np.nan, 2.0, 1.0, -1.0, np.inf, 3.0], sys.argv[1])
for name in sys.argv[2:]:
    text = open(name).read()
    made = [motet.compile(text, devices=device, cache=False) for device in ("abacus", "host")]
    found = [np.asarray(motet.load(each)(x, y)) for each in made]
    np.testing.assert_allclose(*found, rtol=1e-6 if x.dtype == "f4" else 1e-14, err_msg=name)
    np.testing.assert_array_equal(np.signbit(found[0])[:4], np.signbit(found[1])[:4], err_msg=name)
"""


@pytest.mark.parametrize(("element", "dtype"), [("f32", "f4"), ("f64", "f8")])
def test_numbers_at_the_edges_are_those_of_the_host(element: str, dtype: str, python: Command, tmp_path: Path) -> None:
    operations = ["arith.maximumf %a, %b", "arith.minimumf %a, %b", "arith.divf %a, %b", "math.tanh %a",
                  "math.roundeven %a", "math.copysign %a, %b"]
    names: list[str] = []
    for number, operation in enumerate(operations):
        names.append(f"{number}.mlir")
        (tmp_path / names[-1]).write_text(SCALARS.replace("OPERATION", operation).replace("TYPE", element))
    outcome = python("-c", COMPARE, dtype, *names)
    assert outcome.returncode == 0, outcome.stderr


def test_the_example_stays_short() -> None:
    lines = [line for file in PLUGIN.glob("src/**/*.py") for line in file.read_text().splitlines()]
    assert len(lines) < 300


# -- plug-ins that are broken or missing ---------------------------------------------------------------


FAMILY = """
from dataclasses import dataclass
from motet.compiler.targets.family import Family
from motet.compiler.targets.cpu import X86_64_V3
FAMILY = Family("{name}", {{"v3": X86_64_V3}}, ("v3",), codegen="{name}")
"""
BROKEN = {
    "raises": ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
    "leaves": ("import sys\nsys.exit('no licence')", "SystemExit: no licence"),
    "needs": ("import a_module_that_is_not_there", "needs: pip install 'motet-needs'"),
    "old": ("api = 0", "written for version 0 of the contract; expected 1"),
    "opens": ("api = 1\ndef open(target, choice): raise ValueError('a defect')", "ValueError: a defect"),
    "absent": (None, "install the package that has the entry point absent of motet.codegen"),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a distribution is installed for each of `BROKEN`: a family, and its code generator."""
    site = tmp_path_factory.mktemp("broken")
    for name, (code, _) in BROKEN.items():
        info = site / f"motet_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: motet-{name}\nVersion: 1.0\n")
        (site / f"motet_{name}_family.py").write_text(FAMILY.format(name=name))
        entries = f"[motet.targets]\n{name} = motet_{name}_family:FAMILY\n"
        if code is not None:
            entries += f"[motet.codegen]\n{name} = motet_{name}\n"
            (site / f"motet_{name}.py").write_text(code)
        (info / "entry_points.txt").write_text(entries)
    return site


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_code_generator_is_one_line(name: str, broken: Path, tmp_path: Path, add: Path) -> None:
    outcome = run("-m", "motet", "compile", add, "--device", name, site=broken, folder=tmp_path)
    [line] = outcome.stderr.splitlines()
    assert outcome.returncode == 1 and line.startswith("error: ") and BROKEN[name][1] in line


def test_others_are_not_affected(broken: Path, tmp_path: Path, add: Path) -> None:
    outcome = run("-m", "motet", "devices", site=broken, folder=tmp_path)
    lines = outcome.stdout.splitlines()
    for name in BROKEN.keys() - {"opens"}:  # which is known when code is asked for
        [line] = [line for line in lines if line.startswith(f"{name}: no code can be made for it: ")]
        assert BROKEN[name][1] in line
    assert run("-m", "motet", "compile", add, site=broken, folder=tmp_path).returncode == 0
