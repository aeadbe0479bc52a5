"""Measures how long a driver takes to load kernels: from machine code (zebin), from SPIR-V, and from OpenCL C.

    python -m benchmarks.native_code [--device pvc] [--kernels 1 100] [--rounds 3]

The programs are the same in all three: one kernel in each, as artifacts have them, and no two alike. Intel's GPU driver
runs in capture mode, which needs no GPU; Intel's platform for processors takes no zebin. Prints milliseconds, the least
of several rounds in which the kinds alternate, each in a process that has compiled nothing before; in a cell without a
number, why. Needs `make intel` and Debian's package intel-opencl-icd.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from motet.compiler.codegen.triton.compile import ocloc, zebin
from motet.errors import DeviceError
from motet.tools.show import show_table

_ICD = Path("/etc/OpenCL/vendors/intel.icd")
_INSTALL = "apt install intel-opencl-icd"
_KINDS = ("zebin", "SPIR-V", "source")
_REASON = 60  # characters of a cell
_LONGEST = 600  # seconds of a process
_SOURCE = """
kernel void scale_{number}(global const float *x, global float *y, int n) {{
  int i = get_global_id(0);
  float s = 0;
  for (int j = 0; j < {number} % 7 + 3; j++) s += x[(i * (j + {number})) % n] * (j + 0.5f);
  y[i] = native_exp(s) + {number}.25f;
}}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="pvc", help="the GPU that the driver poses as; default: pvc")
    parser.add_argument("--kernels", type=int, nargs="+", default=[1, 100], help="how many; default: 1 100")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", nargs=2, metavar=("FOLDER", "KIND"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        _load(Path(given.load[0]), given.load[1])
    with tempfile.TemporaryDirectory(prefix="motet-native-code-") as name:
        folder = Path(name)
        obstacles = _write(folder, max(given.kernels), given.device)
        rows = _rows(folder, given.device, given.kernels, given.rounds, obstacles)
    print("\n".join(show_table(["platform", "kernels", *(f"{kind}, ms" for kind in _KINDS)], rows)))
    return 0


def _write(folder: Path, count: int, device: str) -> dict[str, str]:
    """Write the programs in all kinds, and return why a kind is missing. SPIR-V is what the compiler keeps of a source
    in its zebin."""
    missing = "" if ocloc.is_available() else f"no offline compiler: {_INSTALL}"
    obstacles = dict.fromkeys(("zebin", "SPIR-V"), missing) if missing else {}
    for number in range(count):
        source = _SOURCE.format(number=number).encode()
        made = {"source": source}
        try:
            if not obstacles:
                built = ocloc.compile_source(source, device, "")
                made |= {"zebin": built.zebin, "SPIR-V": zebin.section(built.zebin, ".spv")}
        except (ocloc.CompilerFailure, ValueError) as error:
            obstacles = {kind: _short(f"no {kind}: {error}") for kind in ("zebin", "SPIR-V")}
        for kind, content in made.items():
            (folder / f"{number}.{kind}").write_bytes(content)
    return obstacles


def _rows(
    folder: Path, device: str, counts: list[int], rounds: int, obstacles: dict[str, str]
) -> list[list[str]]:
    vendors = folder / "vendors"
    vendors.mkdir()
    if _ICD.exists():
        (vendors / "intel.icd").write_text(_ICD.read_text())
    capture = {
        "OCL_ICD_VENDORS": str(vendors), "NEOReadDebugKeys": "1", "SetCommandStreamReceiver": "1",
        "ProductFamilyOverride": device, "PLATFORM": "Graphics", "INSTALL": _INSTALL,
    }
    processors = {"PLATFORM": "Intel(R) OpenCL", "INSTALL": "`make intel`"}
    platforms = {
        f"{device}, in capture mode": (capture, obstacles),
        "Intel's for processors": (processors, {**obstacles, "zebin": "no zebin: the platform is a processor"}),
    }
    return [
        [platform, str(count), *_cells(folder, count, rounds, environment, known)]
        for platform, (environment, known) in platforms.items()
        for count in counts
    ]


def _cells(folder: Path, count: int, rounds: int, environment: dict[str, str], known: dict[str, str]) -> list[str]:
    """For each kind the least time of the rounds, else why there is none: as `known`, or as the first round said."""
    kinds = [kind for kind in _KINDS if kind not in known]
    found = [{kind: _measured(folder, kind, count, environment) for kind in kinds} for _ in range(rounds)]
    cells = dict(known)
    for kind in kinds:
        answers = [each[kind] for each in found]
        times = [answer for answer in answers if isinstance(answer, float)]
        cells[kind] = f"{min(times):.1f}" if times else str(answers[0])
    return [cells[kind] for kind in _KINDS]


def _measured(folder: Path, kind: str, count: int, environment: dict[str, str]) -> float | str:
    """Milliseconds; why there are none if the platform is not there or refuses the code."""
    kept = tempfile.mkdtemp(dir=folder)  # what the driver keeps of its compilations, of no use to others
    cache = {"NEO_CACHE_PERSISTENT": "0", "cl_cache_dir": kept, "COUNT": str(count)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.native_code", "--load", str(folder), kind], capture_output=True,
            check=False, cwd=folder, timeout=_LONGEST, errors="replace",
            env={**os.environ, **environment, **cache, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])},
        )
    except subprocess.TimeoutExpired:
        return f"more than {_LONGEST} s"
    if done.returncode == 0:
        return float(json.loads(done.stdout)["ms"])
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return _short(said[-1]) if said else f"the process ended with status {done.returncode}"


def _short(reason: str) -> str:
    return reason if len(reason) <= _REASON else f"{reason[: _REASON - 1]}…"


def _load(folder: Path, kind: str) -> NoReturn:
    """Load programs on the platform that the environment names, and print how long it took, or why they are not."""
    try:
        print(json.dumps({"ms": _loading_time(folder, kind)}), flush=True)
    except DeviceError as error:
        print(str(error).rstrip(), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)  # threads of Intel's platform may die while the process ends


def _loading_time(folder: Path, kind: str) -> float:
    from motet.runtime.drivers.opencl.api import PLATFORM_NAME, load_api

    api = load_api()
    wanted = os.environ["PLATFORM"]
    platforms = [each for each in api.platforms() if api.platform_text(each, PLATFORM_NAME).endswith(wanted)]
    if not platforms:
        raise DeviceError(f"platform not installed: {os.environ['INSTALL']}")
    named = [device for platform in platforms for device in api.devices(platform)]
    if not named:
        raise DeviceError("the platform has no device on this machine")
    context = api.context_create(named[0])
    codes = [(folder / f"{number}.{kind}").read_bytes() for number in range(int(os.environ["COUNT"]))]
    begin = time.perf_counter()
    for number, code in enumerate(codes):
        load = api.program_load(context, named[0], code) if kind == "zebin" else api.program_create(context, code)
        api.build(load, named[0], "")
        api.kernel_create(load, f"scale_{number}")
    return (time.perf_counter() - begin) * 1000


if __name__ == "__main__":
    sys.exit(main())
