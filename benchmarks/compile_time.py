"""Compile times of programs: `python -m benchmarks.compile_time --markdown`.

For a GPU (which need not be present), by the command line with an empty and with a full cache, and in a warm Python
process; for this machine's CPU, compared with torch.compile, whose first call compiles. CPU seconds include all
processes involved: divided by the number of cores, they are a lower bound of the wall time on an idle machine.

    --rows NAME ...     some of benchmarks.gpu's (default: the ones of the table)
    --repeat N          the least of N (default: 2)
    --peers             also the CPU, compared with torch.compile
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

DEVICE = "cuda{arch=sm_90a}"
ROWS = (
    "fragment", "softmax", "layernorm", "matmul-4096", "encoder", "resnet50-1", "bert-1", "bert-32", "vit-1", "vit-64",
    "gpt2-prefill", "gpt2-step", "llama-step", "llama-prefill",
)  # fmt: skip
PEER_ROWS = ("fragment", "softmax", "layernorm", "encoder", "resnet50-1", "bert-1", "vit-1")
_PATIENCE = 600  # seconds
_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


@dataclass
class Measured:
    """The least of several measurements, in seconds."""

    wall: float = float("inf")
    cpu: float = float("inf")

    def take(self, wall: float, cpu: float) -> None:
        self.wall, self.cpu = min(self.wall, wall), min(self.cpu, cpu)


@dataclass
class Result:
    title: str
    weights: int = 0  # bytes
    kernels: int = 0
    launches: int = 0
    empty: Measured = field(default_factory=Measured)
    full: Measured = field(default_factory=Measured)
    warm: Measured = field(default_factory=Measured)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """The wall and CPU seconds of `work`, including all processes that it started, and their orphans."""
    before, begin = _children(), time.perf_counter()
    work()
    wall = time.perf_counter() - begin
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.01)
            continue
        break
    return wall, _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command_line(model: Path, folder: Path, result: Result, repeat: int) -> None:
    """`motet compile` with an empty cache, and with the cache that it has filled."""
    made = folder / "made.motet"
    command = [sys.executable, "-m", "motet", "compile", str(model), "--device", f"gpu={DEVICE}", "-o", str(made)]
    for number in range(repeat):
        environment = {**os.environ, "MOTET_CACHE_DIR": str(folder / f"cache{number}")}

        def run(given: dict[str, str] = environment) -> None:
            subprocess.run(command, env=given, check=True, capture_output=True, timeout=_PATIENCE)

        result.empty.take(*seconds(run))
        result.full.take(*seconds(run))
    from motet import Artifact

    (variant,) = Artifact.open(made).manifest.variants
    result.kernels = sum(name.endswith(".cubin") for name in variant.objects)
    result.launches = sum(len(schedule.commands) for schedule in variant.schedules.values())
    made.unlink()


def in_process(task: str, *arguments: str) -> dict[str, list[float]]:
    """The output of a separate process that runs `task` of this module."""
    command = [sys.executable, "-m", "benchmarks.compile_time", "--child", task, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    seconds(lambda: None)  # so that processes left over do not count for the next row
    if done.returncode:
        print((done.stderr.strip().splitlines() or ["no reason given"])[-1], file=sys.stderr)
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def child(task: str, arguments: Sequence[str]) -> dict[str, list[float]]:
    """Wall seconds of each run, in a process that has compiled a small program before."""
    if task == "motet":
        return _motet_times(arguments[0], int(arguments[1]))
    return _host_times(arguments[0], int(arguments[1]))


SMALL = """
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %y = math.exp %x : tensor<64xf32>
  return %y : tensor<64xf32>
}
"""


def _motet_times(path: str, repeat: int) -> dict[str, list[float]]:
    import motet

    motet.compile(SMALL, devices=DEVICE, cache=False)
    times: list[float] = []
    for _ in range(repeat):
        begin = time.perf_counter()
        motet.compile(path, devices=DEVICE, cache=False)
        times.append(time.perf_counter() - begin)
    return {"times": times}


def _host_times(name: str, repeat: int) -> dict[str, list[float]]:
    """First calls on the CPU: Motet's compile, load and call, and torch.compile's."""
    import torch

    import motet
    from benchmarks.gpu_compile import exported
    from benchmarks.gpu_measure import inputs

    row = _rows([name])[0]
    model, module, (given,) = exported(row), row.module().eval(), inputs(row, 1, "cpu")
    bits = [tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor for tensor in given]
    motet.compile(SMALL, devices="host{cpu=native}", cache=False)
    torch.compile(torch.nn.Tanh())(torch.ones(64))
    found: dict[str, list[float]] = {"Motet": [], "torch.compile": []}
    with torch.no_grad():
        for _ in range(repeat):
            begin = time.perf_counter()
            session = motet.load(motet.compile(model, devices="host{cpu=native}", cache=False))
            session(*(tensor.numpy() for tensor in bits))
            found["Motet"].append(time.perf_counter() - begin)
            torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
            begin = time.perf_counter()
            torch.compile(module)(*given)
            found["torch.compile"].append(time.perf_counter() - begin)
    return found


def measure(name: str, repeat: int, folder: Path) -> Result:
    from benchmarks.gpu_compile import exported

    row = _rows([name])[0]
    model = folder / f"{name}.onnx"
    model.write_bytes(exported(row))
    result = Result(row.title, model.stat().st_size)
    command_line(model, folder, result, repeat)
    for wall in in_process("motet", str(model), str(repeat)).get("times", []):
        result.warm.take(wall, wall)
    model.unlink()
    return result


def _rows(names: Sequence[str]):
    from benchmarks.gpu_rows import rows

    known = {row.name: row for row in rows()}
    return [known[name] for name in names]


def markdown(results: dict[str, Result], peers: dict[str, dict[str, list[float]]]) -> str:
    cores = len(os.sched_getaffinity(0))
    busy = os.getloadavg()[0]
    lines = [
        f"{platform.machine()}, {cores} cores, load {busy:.0f}; seconds, the least of several. CPU seconds are of all "
        "processes.",
        "",
        "| work | model, MB | kernels | launches | empty cache | CPU s | full cache | CPU s | warm process, no cache |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for result in results.values():
        lines.append(
            f"| {result.title} | {result.weights / 1e6:.0f} | {result.kernels} | {result.launches} | "
            f"{result.empty.wall:.2f} | {result.empty.cpu:.2f} | {result.full.wall:.2f} | {result.full.cpu:.2f} | "
            f"{result.warm.wall:.2f} |"
        )
    if peers:
        titles = {row.name: row.title for row in _rows(list(peers))}
        lines += ["", "For this machine's processors, in a warm process, to the end of the first call:", "",
                  "| work | Motet | torch.compile |", "|---|--:|--:|"]
        lines += [
            f"| {titles[name]} | {_least(found, 'Motet')} | {_least(found, 'torch.compile')} |"
            for name, found in peers.items()
        ]
    return "\n".join(lines)


def _least(found: dict[str, list[float]], name: str) -> str:
    return f"{min(found[name]):.2f}" if found.get(name) else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=list(ROWS))
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="print the table instead of JSON")
    parser.add_argument("--child", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child[0], options.child[1:])))
        return 0
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    results: dict[str, Result] = {}
    peers: dict[str, dict[str, list[float]]] = {}
    for name in options.rows:
        with tempfile.TemporaryDirectory(prefix="motet-compile-time-") as folder:
            results[name] = measure(name, options.repeat, Path(folder))
        print(f"{name}: {results[name].empty.wall:.2f} s", file=sys.stderr)
    for name in [name for name in options.rows if name in PEER_ROWS] if options.peers else []:
        peers[name] = in_process("host", name, str(options.repeat))
    if options.markdown:
        print(markdown(results, peers))
    else:
        print(json.dumps({"rows": {name: asdict(each) for name, each in results.items()}, "peers": peers}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
