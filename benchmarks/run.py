"""The peers table: `python -m benchmarks.run`. One core and all cores, every contender in one process per count.

In each process contenders take turns round by round; minimum and median of the rounds are kept. A result that
differs from the others is shown as `wrong`, a contender that cannot take part as `–`. The limit of a row is the larger
of its operations over the best rate that any row reached and its bytes over the bandwidth of a triad into memory
that is there already; both are measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MOTET_THREADS")
QUIET = 0.03  # seconds for the last contender's threads to stop spinning
SPINNING = {"KMP_BLOCKTIME": "10", "OMP_WAIT_POLICY": "passive"}  # milliseconds; OpenMP's default is 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help="comma-separated names of workloads; default all")
    parser.add_argument("--peers", help="comma-separated names of contenders; default all")
    parser.add_argument("--cores", help="comma-separated core counts; default 1 and all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measure(options.child, options.rows, options.peers, options.rounds)
        return
    available = len(os.sched_getaffinity(0))
    counts = [int(c) for c in options.cores.split(",")] if options.cores else sorted({1, available})
    text = f"{date.today()}, {processor()}, {available} cores, Python {platform.python_version()}\n"
    for count in counts:
        text += "\n" + table(count, child(count, options))
    print(text)
    if options.markdown:
        options.markdown.write_text(text)


def child(count: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all rows on `count` cores in a process tree of their own."""
    command = [sys.executable, "-m", "benchmarks.run", "--child", str(count), "--rounds", str(options.rounds)]
    for name in ("rows", "peers"):
        if getattr(options, name):
            command += [f"--{name}", getattr(options, name)]
    cores = sorted(os.sched_getaffinity(0))[:count]
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(count)), **SPINNING}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    ) as process:
        assert process.stdout is not None
        rows: list[dict[str, Any]] = []
        for line in process.stdout:
            if line.startswith("{"):
                rows.append(json.loads(line))
                print(f"{count} cores: {rows[-1]['name']}", file=sys.stderr)
    return rows


# -- in the child --------------------------------------------------------------------------------


def measure(threads: int, rows: str | None, peers: str | None, rounds: int) -> None:
    from benchmarks.peers import PEERS
    from benchmarks.workloads import WORKLOADS

    chosen = peers.split(",") if peers else list(PEERS)
    print(json.dumps({"name": "bandwidth", "bytes_per_second": bandwidth(threads)}), flush=True)
    for name in rows.split(",") if rows else WORKLOADS:
        work = WORKLOADS[name]()
        times, absent = contest({peer: PEERS[peer] for peer in chosen}, work, threads, rounds)
        print(json.dumps({
            "name": work.name, "flops": work.flops, "bytes": work.bytes, "times": times, "absent": absent,
        }), flush=True)


def contest(
    peers: dict[str, Callable[..., Any]], work: Any, threads: int, rounds: int
) -> tuple[dict[str, tuple[float, float]], dict[str, str]]:
    """Seconds per run (minimum, median) of every contender, and why the others are absent."""
    import numpy as np

    calls: dict[str, Callable[[], Any]] = {}
    absent: dict[str, str] = {}
    expected: Any = None
    for name, prepare in peers.items():
        try:
            call = prepare(work, threads)
            result = np.array(call())
        except Exception as error:  # a peer may fail in any way of its own: the table says how
            absent[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:100] if str(error) else ''}"
            continue
        if expected is None:
            expected = work.reference(work.inputs) if work.reference else result
        scale = float(np.abs(expected).max())
        if result.shape != expected.shape or not float(np.abs(result - expected).max()) <= 2e-3 * scale:
            absent[name] = "wrong"
            continue
        calls[name] = call
    repeat = {name: repetitions(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(QUIET)
            call()
            start = time.perf_counter()
            for _ in range(repeat[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeat[name])
    return {name: (min(seconds), statistics.median(seconds)) for name, seconds in times.items()}, absent


def repetitions(call: Callable[[], Any], target: float = 0.02) -> int:
    call()
    start = time.perf_counter()
    call()
    return max(1, int(target / max(time.perf_counter() - start, 1e-7)))


def bandwidth(threads: int) -> float:
    """Bytes per second of `c = a + b` by Motet's own streaming kernel into memory that is there already."""
    import numpy as np

    from benchmarks.peers import motet_out
    from benchmarks.workloads import WORKLOADS

    work = WORKLOADS["add"]()
    call = motet_out(work, threads)
    call()
    seconds = []
    for _ in range(8):
        start = time.perf_counter()
        np.asarray(call())
        seconds.append(time.perf_counter() - start)
    return work.bytes / min(seconds)


# -- the table -----------------------------------------------------------------------------------


def table(count: int, rows: Sequence[dict[str, Any]]) -> str:
    speed = next(row["bytes_per_second"] for row in rows if row["name"] == "bandwidth")
    rows = [row for row in rows if row["name"] != "bandwidth"]
    peers = list(dict.fromkeys(name for row in rows for name in (*row["times"], *row["absent"])))
    rate = max((row["flops"] / seconds[0] for row in rows for seconds in row["times"].values()), default=1.0)
    lines = [
        f"### {count} core{'s' if count > 1 else ''}: milliseconds, minimum (median); best rate"
        f" {rate / 1e9:.0f} GFLOP/s, bandwidth {speed / 1e9:.1f} GB/s", "",
        "| work | " + " | ".join(peers) + " | best peer / Motet | limit / Motet |",
        "|---|" + "---|" * (len(peers) + 2),
    ]
    for row in rows:
        times = row["times"]
        cells = [f"{times[p][0] * 1e3:.4g} ({times[p][1] * 1e3:.4g})" if p in times else row["absent"].get(p, "–")
                 for p in peers]
        cells = [cell if cell[:1].isdigit() or cell == "wrong" else "–" for cell in cells]
        ours = [times[p][0] for p in times if p.startswith("motet")]
        others = [times[p][0] for p in times if not p.startswith("motet")]
        ratio = f"{min(others) / min(ours):.2f}" if ours and others else "–"
        limit = max(row["flops"] / rate, row["bytes"] / speed)
        reached = f"{limit / min(ours):.2f}" if ours and limit else "–"
        lines.append(f"| {row['name']} | " + " | ".join(cells) + f" | {ratio} | {reached} |")
    why = {f"{p}: {reason}" for row in rows for p, reason in row["absent"].items() if reason != "Absent: not written"}
    if why:
        lines += ["", "Absent: " + "; ".join(sorted(why)) + "."]
    return "\n".join(lines) + "\n"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
