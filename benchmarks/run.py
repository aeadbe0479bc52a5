"""Motet compared with its peers and with the machine's limits: `python -m benchmarks.run --markdown FILE`.

For each number of cores, each contender has a separate process on those cores (affinity and thread variables are set
before it starts; none runs while another one is timed). For each row, all contenders prepare the workload, their
results are compared with a float64 reference, and then they run alternately in rounds. The table has the fastest call,
the JSON file also the median. The limit of a row is the larger of its operations over the multiply-add peak and its
bytes over the bandwidth, both measured in the same run (see limits.py); int8 has four times the peak of float32.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import select
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.peers import CONTENDERS
from benchmarks.workloads import WORKLOADS, Workload

HERE = Path(__file__).parent
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
PACKAGES = ("motet", "numpy", "torch", "onnxruntime", "openvino", "iree-base-compiler", "torch-mlir", "llvmlite")
SPINNING = {"KMP_BLOCKTIME": "10", "OMP_WAIT_POLICY": "passive"}  # milliseconds; the default is up to 200
INT8_RATE = 4
OWN = ("Motet", "Motet, its memory")


class Child:
    """A contender's process, started at its first command, and again after it died or took too long."""

    def __init__(self, name: str, cores: list[int], folder: Path) -> None:
        self.name, self.cores, self.folder = name, cores, folder
        self._process: subprocess.Popen[str] | None = None

    def send(self, **command: Any) -> None:
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # `receive` reports it

    def receive(self, timeout: float) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], timeout)
        line = process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.stop()
        return {"absent": f"died with {process.returncode}" if ready else f"no result after {timeout:.0f} s"}

    def ask(self, timeout: float, **command: Any) -> dict[str, Any]:
        self.send(**command)
        return self.receive(timeout)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        count, cores = str(len(self.cores)), set(self.cores)
        environment = {**os.environ, **dict.fromkeys(THREADS, count), **SPINNING, "TOKENIZERS_PARALLELISM": "false",
                       "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor")}
        with (self.folder / f"{self.name}.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.contender", self.name, count, str(self.folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
                cwd=HERE.parent, preexec_fn=lambda: os.sched_setaffinity(0, cores))


def measure(workload: Workload, children: dict[str, Child], rounds: int, options: argparse.Namespace) -> dict[str, Any]:
    """The answer of each contender: `times` in seconds, or why there are none."""
    answers: dict[str, Any] = {}
    for name, child in children.items():
        answers[name] = child.ask(options.timeout, do="prepare", workload=workload.name)
    ready = [name for name, answer in answers.items() if "seconds" in answer]
    times: dict[str, list[float]] = {name: [] for name in ready}
    patience = time.monotonic() + options.patience
    for _ in range(rounds):
        for name in list(ready):
            await_quiet(patience)
            answer = children[name].ask(60, do="round", seconds=options.slot)
            if "times" in answer:
                times[name] += answer["times"]
            else:
                answers[name] = answer
                ready.remove(name)
    for name in ready:
        answers[name] |= {"min": min(times[name]), "median": statistics.median(times[name])}
    return answers


def measure_limits(
    cores: list[int], folder: Path, options: argparse.Namespace, before: dict[str, float]
) -> dict[str, float]:
    """The better of the current limits and `before`, as disturbances only lower them."""
    child = Child("limits", cores, folder)
    await_quiet(time.monotonic() + options.patience)
    limit = child.ask(60, do="limits")
    child.stop()
    return {name: max(value, before.get(name, 0.0)) for name, value in limit.items()}


def await_quiet(end: float) -> None:
    """Wait until other programs on this machine are idle, at most until `end`: they affect spinning threads most."""
    while time.monotonic() < end:
        if int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) <= 1:
            return
        time.sleep(0.01)


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    chosen = [w for w in WORKLOADS if not options.rows or w.name in options.rows]
    kinds = [c for c in CONTENDERS if c.name in OWN or not options.contenders or c.name in options.contenders]
    available = sorted(os.sched_getaffinity(0))
    report: dict[str, Any] = {"machine": machine(), "cores": {}, "build": {}, "costs": {}}
    builder = {kind.name: Child(kind.name, available, folder) for kind in kinds}
    for index, workload in enumerate(chosen):
        say(f"preparing {workload.title} ({index + 1} of {len(chosen)})")
        first = Child("reference", available, folder)
        failed = first.ask(300, do="reference", workload=workload.name)
        first.stop()
        if "absent" in failed:
            raise SystemExit(f"error: {workload.name}: no reference: {failed['absent']}")
        report["build"][workload.name] = {
            name: child.ask(options.timeout, do="build", workload=workload.name)
            for name, child in builder.items() if name in ("Motet", "IREE")}
    for child in builder.values():
        child.stop()
    if any(w.name == "resnet18" for w in chosen):
        say("compiling, loading and memory of ResNet-18")
        costs = Child("costs", available, folder)
        report["costs"] = costs.ask(300, do="motet")
        costs.stop()
    for count in options.cores or sorted({1, len(available)}):
        cores = available[-count:]
        say(f"{count} cores: limits")
        limit = measure_limits(cores, folder, options, {})
        children = {kind.name: Child(kind.name, cores, folder) for kind in kinds}
        rows: dict[str, Any] = {}
        for index, workload in enumerate(chosen):
            say(f"{count} cores: {workload.title} ({index + 1} of {len(chosen)})")
            rows[workload.name] = measure(workload, children, options.rounds, options)
            report["cores"][str(count)] = {"limits": limit, "rows": rows}
            save(report, options.json)
        for child in children.values():
            child.stop()
        report["cores"][str(count)]["limits"] = measure_limits(cores, folder, options, limit)
    say("")
    return report


def save(report: dict[str, Any], file: Path | None) -> None:
    """Save after every row, so that an interrupted run keeps its results."""
    if file is not None:
        file.write_text(json.dumps(report, indent=1))


def machine() -> dict[str, Any]:
    model = next((line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
                 platform.processor())
    memory = next((int(line.split()[1]) >> 20 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory": memory,
        "python": sys.version.split()[0],
        "date": datetime.date.today().isoformat(),
        "versions": {package: _version(package) for package in PACKAGES},
        "command": "python -m " + " ".join(["benchmarks.run", *sys.argv[1:]]),
    }


def _lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines() if Path(file).exists() else []


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def say(text: str) -> None:
    """Print progress: updates one line on a terminal, else prints a line each."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
    elif text:
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


# -- tables --------------------------------------------------------------------------------------


def limit_of(workload: Workload, limits: dict[str, float]) -> float:
    rate = INT8_RATE if workload.ops == "int8" else 1
    return max(workload.flops / (rate * limits["peak"]), workload.bytes / limits["bandwidth"])


def markdown(report: dict[str, Any]) -> str:
    host = report["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in host["versions"].items())
    parts = [
        f"{host['processor']}, {host['cores']} cores, {host['memory']} GiB; {host['date']}; "
        f"Python {host['python']}, {versions}.", "", f"`{host['command']}`", ""]
    for count, result in report["cores"].items():
        parts += [_table(count, result), ""]
    parts += _costs(report)
    return "\n".join(parts).rstrip() + "\n"


def _table(count: str, result: dict[str, Any]) -> str:
    limits = result["limits"]
    names = list(next(iter(result["rows"].values())))
    where = "One core" if count == "1" else f"{count} cores"
    lines = [
        f"### {where}: fastest call, ms", "",
        f"Limits: {limits['peak'] / 1e9:.0f} GFLOP/s, {limits['bandwidth'] / 1e9:.1f} GB/s.", "",
        f"| work | {' | '.join(names)} | limit | best peer ÷ Motet | limit ÷ Motet |",
        "|---|" + "---:|" * (len(names) + 3)]
    notes: list[str] = []
    for workload in WORKLOADS:
        if (answers := result["rows"].get(workload.name)) is None:
            continue
        peers = [answer["min"] for name, answer in answers.items() if name not in OWN and "min" in answer]
        own, limit = answers["Motet"].get("min"), limit_of(workload, limits)
        best = min(peers, default=None)
        cells = [_cell(name, workload, answer, best, notes) for name, answer in answers.items()]
        tiny = limit < 1e-7
        ratios = ["–" if own is None or best is None else f"{best / own:.2f}",
                  "–" if own is None or tiny else f"{limit / own:.2f}"]
        row = [workload.title, *cells, "–" if tiny else _ms(limit), *ratios]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _cell(name: str, workload: Workload, answer: dict[str, Any], best: float | None, notes: list[str]) -> str:
    if "min" in answer:
        text = _ms(answer["min"])
        return f"**{text}**" if name == "Motet" and (best is None or answer["min"] <= best) else text
    why = answer.get("absent") or f"wrong: {answer.get('wrong')}"
    if why != "no such operator":
        notes.append(f"- {name}, {workload.title}: {why}")
    return "wrong" if "wrong" in answer else "–"


def _ms(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.01 else f"{value:.5f}"


def _costs(report: dict[str, Any]) -> list[str]:
    builds = [
        (w.title, *(answers.get(name, {}).get("seconds") for name in ("Motet", "IREE")))
        for w in WORKLOADS if (answers := report["build"].get(w.name)) is not None]
    lines = ["### Compiling, seconds", "", "Without a cache; Motet for every processor level of its host's kind, "
             "IREE (ONNX import and compiler) for this one.", "", "| work | Motet | IREE |", "|---|---:|---:|"]
    lines += [f"| {title} | {_seconds(own)} | {_seconds(peer)} |" for title, own, peer in builds]
    if "seconds" in (costs := report["costs"]):
        mib = [f"{value / 2**20:.1f}" for value in (costs["size"], *costs["held"], costs["peak"])]
        seconds = costs["seconds"]
        lines += ["", "### ResNet-18: loading and memory", "",
                  f"Compile {seconds['cold']:.2f} s, from the cache {seconds['cached'] * 1e3:.1f} ms; "
                  f"load {seconds['load'] * 1e3:.1f} ms, first call {seconds['first call'] * 1e3:.1f} ms. "
                  f"The file has {mib[0]} MiB. The session holds {mib[1]} MiB of parameters, {mib[2]} of arena, "
                  f"{mib[3]} of results; the process grew by {mib[4]} MiB at its peak while loading and calling."]
    return lines


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def run_networks(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    from benchmarks import networks

    precisions = options.networks.split(",")
    if unknown := [each for each in precisions if each not in networks.PRECISIONS]:
        parser.error(f"--networks: {unknown[0]!r} is unknown; available: {', '.join(networks.PRECISIONS)}")
    text = networks.run(precisions, options.cores or [1], options.rounds, say)
    if options.markdown:
        options.markdown.write_text(text)
    else:
        print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--rows", nargs="+", choices=names, metavar="ROW", help=f"only these: {', '.join(names)}")
    parser.add_argument("--contenders", nargs="+", choices=[c.name for c in CONTENDERS], metavar="NAME",
                        help=f"Motet and these: {', '.join(c.name for c in CONTENDERS)}")
    parser.add_argument("--cores", nargs="+", type=int, metavar="N", help="numbers of cores (default: 1, and all)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each contender (default: %(default)s)")
    parser.add_argument("--slot", type=float, default=0.04, help="seconds of a round (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=8, metavar="S",
                        help="seconds to wait per row for a machine without other work (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=90, help="seconds to get ready (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, not to the terminal")
    parser.add_argument("--networks", metavar="PRECISIONS",
                        help="whole networks in these precisions instead, such as f32,bf16,int8 (one core by default)")
    options = parser.parse_args()
    if options.networks:
        run_networks(parser, options)
        return
    with tempfile.TemporaryDirectory(prefix="motet-bench-") as folder:
        report = run(options, Path(folder))
    save(report, options.json)
    if options.markdown:
        options.markdown.write_text(markdown(report))
    else:
        print(markdown(report))


if __name__ == "__main__":
    main()
