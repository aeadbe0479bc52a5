"""Motet and its peers on an NVIDIA GPU, in two steps, as the compiler needs no GPU and the runtime no compiler:

    python -m benchmarks.gpu compile --out DIR          anywhere; --pack makes one small file of it
    python -m benchmarks.gpu run DIR --markdown FILE    on a machine with a GPU and PyTorch
    python -m benchmarks.gpu all --markdown FILE        both
    python -m benchmarks.gpu table DIR --merge A B …    the tables of several runs' results
    python -m benchmarks.gpu gate                       whether 60 rows of the corpus are as fast as they were
    python -m benchmarks.gpu launches                   whether 200 keep their launches and bytes; needs no GPU

For each row, all contenders prepare it, their results are compared with a reference of higher precision, and then they
run alternately in rounds, each with enough calls to fill some milliseconds, timed by CUDA events around them. Calls
iterate over sets of fresh random inputs that together exceed the second-level cache. The table has the fastest round,
per call; the JSON lines have the median, whole calls by the clock, and the time of each kernel. The limit of a row is
the larger of its operations over the GPU's peak and its bytes over the bandwidth of a copy, measured in the same run.
Rows run in a separate process, which is restarted if it dies. Separate passes follow: IREE, whose driver may end the
process; cold starts, in fresh processes (`benchmarks.gpu_cold`); and JAX's networks with max-autotune, which searches
for long and, like reduce-overhead, is given only some rows. Rows that exceed the time limit have no figures.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_compile import CONTENDERS as COMPILED
from benchmarks.gpu_compile import compile_rows, pack, unpacked
from benchmarks.gpu_rows import LATER, Row, rows
from benchmarks.run import HERE

OWN = ("Motet", "Motet, graph")
PEERS = {
    "eager": "PyTorch as it is: products are cuBLAS's",
    "graph": "a CUDA graph of its calls",
    "compile": "torch.compile",
    "compile+graph": "a CUDA graph of what it makes",
    "reduce-overhead": "torch.compile with graphs of its own, of some rows",
    "JAX": "jax.jit, of rows that are written for it",
    "IREE": "its CUDA, if iree-base-runtime is installed",
    "max-autotune": "torch.compile that searches, in a CUDA graph; of some rows, with a limit of time for each",
}
RESULTS = "results.jsonl"
_ALONE = (("IREE",), ("JAX", "max-autotune"))  # contenders measured in separate passes
_PATIENCE = 50.0  # seconds without a result after which a row of such a pass is given up
_SHARE = 0.6  # of the remaining time, for IREE
_DEATHS = 3  # consecutive rows that end the process, after which a pass is given up


@dataclass(frozen=True)
class Pass:
    """Rows that a child measures with these contenders, the seconds for one row, and the fraction of the remaining
    time."""

    contenders: tuple[str, ...]
    rows: tuple[str, ...]
    patience: float
    share: float = 1.0


def passes(options: argparse.Namespace) -> Iterator[Pass]:
    chosen = _chosen(options)
    together = [name for name in options.peers if name == "JAX" or not any(name in group for group in _ALONE)]
    if together or not options.peers:
        yield Pass((OWN[0], *together, OWN[1]), tuple(row.name for row in chosen), options.patience)
    for group in _ALONE:
        names = tuple(name for name in group if name in options.peers)
        theirs = tuple(row.name for row in chosen if any(_has_alone(name, row) for name in names))
        if theirs:
            yield Pass(names, theirs, _PATIENCE, _SHARE if "IREE" in names else 1.0)


def _has_alone(contender: str, row: Row) -> bool:
    if contender == "max-autotune":
        return row.searched
    return contender != "JAX" or (row.group in LATER["JAX"] and row.jax is not None)


def supervise(options: argparse.Namespace, folder: Path) -> None:
    """Start a child for each pass; restart it at the next row if it dies or exceeds the time for one."""
    options.results.write_text("")
    end = time.time() + options.time_limit
    every = list(passes(options))
    cold = min(1, len(every) - 1)  # after the first two passes
    for number, each in enumerate(every):
        names = list(each.rows)
        deaths = 0
        until = time.time() + each.share * (end - time.time())
        while names and time.time() < until and deaths < _DEATHS:
            before = len(read(options.results))
            command = _child(each, names, options, folder, until, machine=not before)
            code = watch(command, options.results, each.patience, until)
            lines = read(options.results)[before:]
            done = [line["row"] for line in lines if "row" in line]
            begun = [line["begin"] for line in lines if "begin" in line]
            deaths = 1 if done else deaths + 1
            if begun and begun[-1] not in done:
                why = f"its process ended with {code}"
                note(options.results, {"row": begun[-1], "error": why,
                                       "peers": {name: {"absent": why} for name in each.contenders}})
                done.append(begun[-1])
            if not begun or code == 0:
                break
            names = [name for name in names if name not in done]
        if number == cold and options.cold:
            _start_cold(options, folder, end)


def _child(each: Pass, names: list[str], options: argparse.Namespace, folder: Path, end: float,
           machine: bool) -> list[str]:
    return [sys.executable, "-m", "benchmarks.gpu", "child", str(folder), "--results", str(options.results),
            "--until", str(end), "--rounds", str(options.rounds), "--slot", str(options.slot),
            *(["--machine"] if machine else []), "--rows", *names, "--peers", *each.contenders]


def watch(command: Sequence[str], results: Path, patience: float, end: float,
          environment: Mapping[str, str] | None = None) -> int | None:
    """Run `command` until it ends, until `results` has not grown for `patience` seconds, or until 15 s after `end`;
    returns the exit status."""
    child = subprocess.Popen(command, env=environment, cwd=HERE.parent)
    changed, length = time.time(), -1
    while child.poll() is None:
        time.sleep(0.2)
        size = results.stat().st_size if results.exists() else 0
        if size != length:
            changed, length = time.time(), size
        if time.time() - changed > patience or time.time() > end + 15:
            child.kill()
    return child.returncode


def _start_cold(options: argparse.Namespace, folder: Path, end: float) -> None:
    from benchmarks.gpu_cold import starts

    for line in starts(_chosen(options), folder, end):
        note(options.results, line)


def note(file: Path, line: dict[str, Any]) -> None:
    with file.open("a") as stream:
        stream.write(json.dumps(line) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _chosen(options: argparse.Namespace) -> list[Row]:
    """The requested rows, given by name or by group, in that order."""
    every = rows()
    if not options.rows:
        return every
    found: list[Row] = []
    for wanted in options.rows:
        matching = [row for row in every if wanted in (row.name, row.group)]
        if not matching:
            groups = ", ".join(dict.fromkeys(row.group for row in every))
            raise SystemExit(f"error: no row or group {wanted!r}; groups: {groups}; "
                             f"rows: {', '.join(row.name for row in every)}")
        found += [row for row in matching if row not in found]
    return found


def _measure(options: argparse.Namespace) -> None:
    from benchmarks.gpu_measure import measure_machine, run_rows

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=2")  # like 4, but without checking results
    with torch.no_grad():
        if options.machine:
            note(options.results, {"machine": measure_machine()})
        run_rows(_chosen(options), options, options.source)


def _table(options: argparse.Namespace, folder: Path, lines: list[dict[str, Any]]) -> None:
    from benchmarks.gpu_table import markdown

    text = markdown(rows(), lines, json.loads((folder / "compiled.json").read_text()))
    if options.markdown:
        options.markdown.write_text(text)
    print(text)


def main() -> None:
    options = _options()
    if options.step == "launches":
        from benchmarks.gpu_launches import run as compare

        raise SystemExit(compare(options.rows or [], options.write))
    if options.step == "gate":
        from benchmarks.gpu_gate import run

        raise SystemExit(run(options.out / "gate", options.write))
    if options.step == "list":
        print("\n".join(f"{row.group:14} {row.name:18} {row.title}" for row in rows()))
    elif options.step == "child":
        _measure(options)
    elif options.step == "table":
        _table(options, options.source or options.out, [line for file in options.merge for line in read(file)])
    if options.step in ("compile", "all"):
        compile_rows(_chosen(options), options.out, options.target, options.programs, options.models)
        if options.pack:
            pack(options.out, options.pack)
    if options.step in ("run", "all"):
        with tempfile.TemporaryDirectory(prefix="motet-gpu-") as temporary:
            folder = unpacked(options.source or options.out, Path(temporary))
            supervise(options, folder)
            _table(options, folder, read(options.results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["compile", "run", "all", "table", "child", "list", "gate", "launches"])
    parser.add_argument("source", nargs="?", type=Path, help="the output of `compile`: a folder, or a packed file")
    parser.add_argument("--out", type=Path, default=Path("build/gpu-benchmarks"), help="folder for artifacts")
    parser.add_argument("--pack", type=Path, metavar="FILE", help="also write the artifacts as one file")
    parser.add_argument("--target", default="sm_90a", help="architectures to compile for (default: %(default)s)")
    parser.add_argument("--programs", nargs="+", choices=COMPILED, default=["Motet"],
                        help="whose programs `compile` makes (default: %(default)s); others in the folder are kept")
    parser.add_argument("--models", type=Path, metavar="DIR", help="cache of exported models")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="only these, or groups of them; `list` shows them")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), metavar="NAME",
                        help="; ".join(f"{name}: {what}" for name, what in PEERS.items()).replace("%", "%%"))
    parser.add_argument("--no-cold", dest="cold", action="store_false", help="measure no cold starts")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each contender (default: %(default)s)")
    parser.add_argument("--slot", type=float, default=0.006, help="seconds of a round (default: %(default)s)")
    parser.add_argument("--time-limit", type=float, default=3600, metavar="S", help="start no row after this time")
    parser.add_argument("--patience", type=float, default=150.0, metavar="S", help="seconds for one row at most")
    parser.add_argument("--results", type=Path, default=Path(RESULTS), metavar="FILE", help="lines of JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    parser.add_argument("--merge", nargs="+", type=Path, default=[], metavar="FILE", help="results, for `table`")
    parser.add_argument("--write", action="store_true", help="`gate`, `launches`: store the figures")
    parser.add_argument("--machine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=math.inf, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
