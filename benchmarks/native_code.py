"""Measures how long a driver takes to load kernels: from machine code (zebin), from SPIR-V, and from OpenCL C.

    python -m benchmarks.native_code [--device pvc] [--kernels 1 100] [--rounds 3]

The programs are the same in all three: one kernel in each, as artifacts have them, and no two alike. Intel's GPU driver
runs in capture mode, which needs no GPU; Intel's platform for processors takes no zebin. Prints milliseconds, the least
of several rounds in which the kinds alternate, each in a process that has compiled nothing before. Needs `make intel`
and Debian's package intel-opencl-icd.
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

from motet.compiler.codegen.triton.compile import ocloc, zebin

_ICD = Path("/etc/OpenCL/vendors/intel.icd")
_KINDS = ("zebin", "SPIR-V", "source")
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
        return _load(Path(given.load[0]), given.load[1])
    if not ocloc.is_available():
        print(f"error: no offline compiler; {ocloc.INSTALL}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="motet-native-code-") as name:
        folder = Path(name)
        _write(folder, max(given.kernels), given.device)
        rows = _rows(folder, given.device, given.kernels, given.rounds)
    print(f"{'platform':32}{'kernels':>8}" + "".join(f"{kind:>10}" for kind in _KINDS) + "   ms")
    for platform, count, times in rows:
        cells = "".join(f"{times[kind]:10.1f}" if kind in times else f"{'-':>10}" for kind in _KINDS)
        print(f"{platform:32}{count:8}{cells}")
    return 0


def _write(folder: Path, count: int, device: str) -> None:
    """The programs in all kinds; SPIR-V is what the compiler keeps of a source in its zebin."""
    for number in range(count):
        source = _SOURCE.format(number=number).encode()
        built = ocloc.compile_source(source, device, "")
        spirv = zebin.section(built.zebin, ".spv")
        for kind, content in zip(_KINDS, (built.zebin, spirv, source), strict=True):
            (folder / f"{number}.{kind}").write_bytes(content)


def _rows(
    folder: Path, device: str, counts: list[int], rounds: int
) -> list[tuple[str, int, dict[str, float]]]:
    vendors = folder / "vendors"
    vendors.mkdir()
    if _ICD.exists():
        (vendors / "intel.icd").write_text(_ICD.read_text())
    capture = {
        "OCL_ICD_VENDORS": str(vendors), "NEOReadDebugKeys": "1", "SetCommandStreamReceiver": "1",
        "ProductFamilyOverride": device, "PLATFORM": "Graphics",
    }
    platforms = {
        f"{device}, in capture mode": (capture, _KINDS),
        "Intel's for processors": ({"PLATFORM": "Intel(R) OpenCL"}, ("SPIR-V", "source")),
    }
    rows: list[tuple[str, int, dict[str, float]]] = []
    for platform, (environment, kinds) in platforms.items():
        for count in counts:
            times: dict[str, float] = {}
            for _ in range(rounds):
                for kind in kinds:
                    took = _measured(folder, kind, count, environment)
                    if took is not None:
                        times[kind] = min(took, times.get(kind, took))
            rows.append((platform, count, times))
    return rows


def _measured(folder: Path, kind: str, count: int, environment: dict[str, str]) -> float | None:
    """Milliseconds; None if the platform is not there."""
    kept = tempfile.mkdtemp(dir=folder)  # what the driver keeps of its compilations, of no use to others
    cache = {"NEO_CACHE_PERSISTENT": "0", "cl_cache_dir": kept, "COUNT": str(count)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.native_code", "--load", str(folder), kind], capture_output=True, text=True,
        check=False, cwd=folder, timeout=600,
        env={**os.environ, **environment, **cache, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])},
    )
    return json.loads(done.stdout)["ms"] if done.returncode == 0 else None


def _load(folder: Path, kind: str) -> int:
    """Load programs on the platform that the environment names, and print how long it took."""
    from motet.runtime.drivers.opencl.api import PLATFORM_NAME, load_api

    api = load_api()
    wanted = os.environ["PLATFORM"]
    platforms = [each for each in api.platforms() if api.platform_text(each, PLATFORM_NAME).endswith(wanted)]
    named = [device for platform in platforms for device in api.devices(platform)]
    if not named:
        return 1
    context = api.context_create(named[0])
    codes = [(folder / f"{number}.{kind}").read_bytes() for number in range(int(os.environ["COUNT"]))]
    begin = time.perf_counter()
    for number, code in enumerate(codes):
        load = api.program_load(context, named[0], code) if kind == "zebin" else api.program_create(context, code)
        api.build(load, named[0], "")
        api.kernel_create(load, f"scale_{number}")
    print(json.dumps({"ms": (time.perf_counter() - begin) * 1000}), flush=True)
    os._exit(0)  # threads of Intel's platform may die while the process ends


if __name__ == "__main__":
    sys.exit(main())
