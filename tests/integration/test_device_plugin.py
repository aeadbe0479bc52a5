"""Devices of other distributions: the example plug-in, installed and used; and plug-ins that are broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.integration.conftest import ROOT, environment
from tests.integration.installed import install_example

PLUGIN = ROOT / "examples" / "device_plugin"

Command = Callable[..., subprocess.CompletedProcess[str]]


def run(*arguments: str | Path, site: Path, folder: Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS` where the distributions in `site` are installed besides this tree."""
    environ = environment()
    environ["PYTHONPATH"] = os.pathsep.join([environ["PYTHONPATH"], str(site)])
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=folder, env=environ, text=True, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=timeout,
    )


# -- the example ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example was installed as its users would."""
    return install_example(PLUGIN, tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def python(site: Path, tmp_path: Path) -> Command:
    """Runs `python ARGUMENTS` with the example installed."""

    def command(*arguments: str | Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return run(*arguments, site=site, folder=tmp_path, timeout=timeout)

    return command


def test_an_installed_device_is_listed_with_what_code_can_be_made_for(python: Command):
    text = python("-m", "motet", "devices").stdout
    assert any(line.startswith("sandbox ") for line in text.splitlines())
    targets = next(line for line in text.splitlines() if line.startswith("code can be made for: "))
    assert "sandbox" in targets
    [found] = [info for info in json.loads(python("-m", "motet", "devices", "--json").stdout)
               if info["uri"] == "sandbox"]
    assert found["available"] is True and found["family"] == "sandbox" and found["memory"] == 1 << 30


@pytest.mark.slow
def test_the_example_keeps_to_the_contract_with_no_exemption(python: Command):
    outcome = python("-m", "motet.runtime.conformance", "sandbox", timeout=400)
    failed = [line for line in outcome.stdout.splitlines() if " FAIL " in line]
    assert outcome.returncode == 0 and failed == [], outcome.stdout + outcome.stderr
    assert " 0 failed, " in outcome.stdout and "exempt" not in outcome.stdout


def test_faults_of_the_example_are_those_of_the_contract(python: Command):
    checks = ("fault-illegal-instruction", "fault-out-of-bounds", "fault-then-usable", "abort-endless")
    only = [word for check in checks for word in ("--only", check)]
    outcome = python("-m", "motet.runtime.conformance", "sandbox", *only)
    assert outcome.returncode == 0 and " 0 failed, " in outcome.stdout, outcome.stdout + outcome.stderr
    for check in checks:
        assert any(check in line and " pass" in line for line in outcome.stdout.splitlines())


@pytest.mark.slow
def test_the_example_keeps_to_the_contract_with_little_memory_and_one_core(python: Command):
    only = [word for area in ("life", "memory", "timelines", "faults") for word in ("--only", area)]
    outcome = python("-m", "motet.runtime.conformance", "sandbox?cores=1&memory=5e6", *only)
    assert outcome.returncode == 0 and " 0 failed, " in outcome.stdout, outcome.stdout + outcome.stderr


def test_nothing_of_the_example_is_left_when_its_user_dies(python: Command, tmp_path: Path):
    """A core that runs a kernel without end ends with the process that launched it."""
    script = tmp_path / "die.py"
    script.write_text(
        "import os, signal, time\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from motet.runtime.conformance.trial import DeviceTrial, Subject\n"
        "trial = DeviceTrial(Subject('sandbox?cores=1'))\n"
        "trial.launch(trial.load(), 'endless', [trial.upload(np.zeros(4, np.uint8))])\n"
        "def children():\n"
        "    tasks = Path('/proc/self/task').iterdir()\n"
        "    return [pid for task in tasks for pid in (task / 'children').read_text().split()]\n"
        "while not children():\n"
        "    time.sleep(0.01)\n"
        "time.sleep(1)\n"
        "print(*children(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    outcome = python(script)
    pids = [int(pid) for pid in outcome.stdout.split()]
    assert len(pids) == 1, outcome.stderr
    wait = "import os, sys, time\nend = time.time() + 120\nwhile os.path.exists(sys.argv[1]):\n"
    wait += "    time.sleep(0.1)\n    assert time.time() < end\n"
    assert python("-c", wait, f"/proc/{pids[0]}").returncode == 0


PROGRAM = """
func.func @main(%x: tensor<?x7xf32>, %w: tensor<7x9xf32>) -> tensor<?x9xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x7xf32>
  %empty = tensor.empty(%n) : tensor<?x9xf32>
  %clear = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x9xf32>) -> tensor<?x9xf32>
  %product = linalg.matmul ins(%x, %w : tensor<?x7xf32>, tensor<7x9xf32>) outs(%clear : tensor<?x9xf32>)
    -> tensor<?x9xf32>
  %result = linalg.exp ins(%product : tensor<?x9xf32>) outs(%empty : tensor<?x9xf32>) -> tensor<?x9xf32>
  return %result : tensor<?x9xf32>
}
"""


@pytest.fixture
def arrays(tmp_path: Path) -> np.ndarray:
    """`program.mlir`, its inputs `x.npy` and `w.npy`, and what it should give, by numpy in 64 bits."""
    (tmp_path / "program.mlir").write_text(PROGRAM)
    random = np.random.default_rng(3)
    x, w = random.standard_normal((13, 7)).astype("f4"), random.standard_normal((7, 9)).astype("f4")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "w.npy", w)
    return np.exp(x.astype("f8") @ w.astype("f8"))


def test_a_program_is_compiled_for_an_installed_device_and_runs_on_it(
    python: Command, arrays: np.ndarray, tmp_path: Path
):
    compiled = python("-m", "motet", "compile", "program.mlir", "--device", "sandbox")
    assert compiled.returncode == 0, compiled.stderr
    inputs = ["--input", "@x.npy", "--input", "@w.npy"]
    plan = python("-m", "motet", "run", "program.motet", "--device", "sandbox?cores=1", *inputs, "--dry-run")
    assert "sandbox" in plan.stdout and "host" not in plan.stdout
    outcome = python(
        "-m", "motet", "run", "program.motet", "--device", "sandbox?cores=1", *inputs, "--output", "y.npy"
    )
    assert outcome.returncode == 0, outcome.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), arrays, rtol=1e-5)


def test_a_program_for_it_says_what_is_missing_or_falls_back_where_it_is_not_installed(
    python: Command, arrays: np.ndarray, tmp_path: Path
):
    devices = ["--device", "acc=sandbox,@cpu", "--device", "cpu=host"]
    assert python("-m", "motet", "compile", "program.mlir", *devices, "-o", "both.motet").returncode == 0
    assert python("-m", "motet", "compile", "program.mlir", "--device", "sandbox", "-o", "one.motet").returncode == 0
    inputs = ["--input", "@x.npy", "--input", "@w.npy"]
    refused = run("-m", "motet", "run", "one.motet", *inputs, site=tmp_path, folder=tmp_path)
    assert refused.returncode == 1 and "sandbox (there is no driver for it)" in refused.stderr
    outcome = run("-m", "motet", "run", "both.motet", *inputs, "--output", "y.npy", site=tmp_path, folder=tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), arrays, rtol=1e-5)


# -- plug-ins that are broken --------------------------------------------------------------------------


def install(site: Path, name: str, code: str | None, drivers: str = "", targets: str = "") -> None:
    """A distribution with one module, and entry points as `name = module` lines."""
    info = site / f"motet_{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: motet-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[motet.drivers]\n{drivers}\n\n[motet.targets]\n{targets}\n")
    if code is not None:
        (site / f"motet_{name}.py").write_text(code)


BROKEN = {
    "raises": ("raise RuntimeError('no such card\\nin this machine')", "RuntimeError: no such card in this machine"),
    "imports": ("import a_module_that_is_not_there", "No module named 'a_module_that_is_not_there'"),
    "leaves": ("import sys\nsys.exit('no licence')", "SystemExit: no licence"),
    "old": ("api = 0\ndef probe(): return []", "written for version 0 of the device interface; expected 1"),
    "new": ("api = 2\ndef probe(): return []", "written for version 2 of the device interface; expected 1"),
    "unversioned": ("def probe(): return []", "written for version None of the device interface; expected 1"),
    "empty": ("api = 1", "has no attribute 'probe'"),
    "fails": ("api = 1\ndef probe(): raise OSError(13, 'no permission')", "no permission"),
    "rubbish": ("api = 1\ndef probe(): return [42]", "an object of type int; expected DeviceInfo"),
    "nothing": ("api = 1\ndef probe(): return None", "TypeError"),
    "missing": (None, "No module named 'motet_missing'"),
    "syntax": ("def probe(:", "SyntaxError"),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every broken plug-in is installed, and a sound one."""
    site = tmp_path_factory.mktemp("broken")
    for name, (code, _) in BROKEN.items():
        install(site, name, code, f"{name} = motet_{name}", f"{name} = motet_{name}:FAMILY")
    sound = (
        "from motet.runtime.device import DeviceInfo\napi = 1\n"
        "def probe(): return [DeviceInfo('a card', 'sound:0', family='sound'),\n"
        "    DeviceInfo('a card', 'sound:1', family='sound', available=False, reason='it is unplugged')]\n"
        "def open(info): raise ZeroDivisionError('a defect')\n"
    )
    install(site, "sound", sound, "sound = motet_sound")
    return site


def test_broken_plugins_are_listed_with_their_reasons_and_take_no_others_along(broken: Path, tmp_path: Path):
    outcome = run("-m", "motet", "devices", site=broken, folder=tmp_path)
    assert outcome.returncode == 0 and outcome.stderr == ""
    lines = outcome.stdout.splitlines()
    for name, (_, reason) in BROKEN.items():
        [line] = [line for line in lines if line.startswith(f"{name}: not available: ")]
        assert reason in line
    assert any(line.startswith("host ") for line in lines) and any(line.startswith("sound:0 ") for line in lines)
    assert "sound:1: not available: it is unplugged" in lines
    assert "Traceback" not in outcome.stdout


def test_target_families_that_cannot_be_loaded_are_listed_with_their_reasons(broken: Path, tmp_path: Path):
    lines = run("-m", "motet", "devices", site=broken, folder=tmp_path).stdout.splitlines()
    for name, reason in {"raises": BROKEN["raises"][1], "empty": "AttributeError", "leaves": "no licence"}.items():
        [line] = [line for line in lines if line.startswith(f"{name}: no code can be made for it: ")]
        assert reason in line
    [families] = [line for line in lines if line.startswith("code can be made for: ")]
    assert "host" in families and "raises" not in families


def test_programs_for_other_devices_compile_and_run_beside_broken_plugins(broken: Path, tmp_path: Path, add: Path):
    compiled = run("-m", "motet", "compile", add, site=broken, folder=tmp_path)
    assert compiled.returncode == 0, compiled.stderr
    outcome = run("-m", "motet", "run", "add.motet", "--input", "3x5xf32=1", "--input", "3x5xf32=2", "--expected",
                  "3x5xf32=3", site=broken, folder=tmp_path)
    assert outcome.returncode == 0, outcome.stderr


def test_compiling_for_a_family_that_cannot_be_loaded_says_why(broken: Path, tmp_path: Path, add: Path):
    outcome = run("-m", "motet", "compile", add, "--device", "imports", site=broken, folder=tmp_path)
    [line] = outcome.stderr.splitlines()
    assert outcome.returncode == 1 and line.startswith("error: ") and BROKEN["imports"][1] in line


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("raises", "device raises: not available: driver 'motet_raises': RuntimeError"),
        ("old", "written for version 0 of the device interface; expected 1"),
        ("sound:1", "device sound:1: not available: it is unplugged"),
        ("sound:0", "device sound:0: cannot be opened: ZeroDivisionError: a defect"),
        ("sound:7", "device sound:7: it is not present; present: sound:0"),
    ],
)
def test_asking_for_a_broken_plugin_is_one_line(uri: str, text: str, broken: Path, tmp_path: Path):
    outcome = run("-m", "motet.runtime.conformance", uri, "--only", "close-twice", site=broken, folder=tmp_path)
    assert outcome.returncode == 1 and "Traceback" not in outcome.stderr + outcome.stdout
    assert text in " ".join((outcome.stdout + outcome.stderr).split())
