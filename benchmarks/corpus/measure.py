"""Measures the rows: contenders alternate, each in a separate process, and every answer is stored at once.

Times of peers are stored by row, version and machine (`peers.json`); `--again` measures them again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.corpus.contender import rows_of
from benchmarks.corpus.peers import PEERS
from benchmarks.corpus.row import Row
from benchmarks.run import HERE, SPINNING, THREADS, Child, await_quiet, machine, measure_limits, say

Answers = dict[str, dict[str, Any]]
OWN = "Motet"
RESTART = 25  # rows after which processes are restarted


@dataclass(frozen=True)
class Plan:
    """The rows and settings of a run, stored with the results so that `--resume` continues it."""

    seed: int
    count: int  # of fresh rows
    rows: Sequence[str]
    cores: Sequence[int]
    peers: Sequence[str]
    target: str
    rounds: int
    slot: float
    patience: float
    timeout: float


class Seated(Child):
    """The process of a contender of the corpus."""

    def __init__(self, name: str, cores: list[int], folder: Path, plan: Plan) -> None:
        super().__init__(name, cores, folder)
        self.plan = plan

    def _start(self) -> subprocess.Popen[str]:
        count, cores = str(len(self.cores)), set(self.cores)
        environment = {**os.environ, **dict.fromkeys(THREADS, count), **SPINNING, "TOKENIZERS_PARALLELISM": "false",
                       "HF_HUB_OFFLINE": "1", "MOTET_CACHE_DIR": str(self.folder / "cache"),
                       "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor")}
        plan = self.plan
        words = [self.name, count, str(self.folder), str(plan.seed), str(plan.count), plan.target]
        with (self.folder / f"{self.name}.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.corpus.contender", *words], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=HERE.parent,
                preexec_fn=lambda: os.sched_setaffinity(0, cores))


class Kept:
    """Stored times of peers by row, version and machine."""

    def __init__(self, file: Path, host: Mapping[str, Any], again: bool) -> None:
        self.file, self.host = file, f"{host['processor']}, {host['cores']} cores"
        self.answers: Answers = json.loads(file.read_text()) if file.exists() and not again else {}

    def key(self, row: Row, peer: str, cores: int, model: int) -> str:
        package = next(kind.package for kind in PEERS if kind.name == peer)
        try:
            number = version(package)
        except PackageNotFoundError:
            number = "absent"
        return f"{row.name} [{model:08x}] | {peer} {number} | {self.host} | {cores}"

    def add(self, key: str, answer: dict[str, Any]) -> None:
        """Store an answer that is a time or a wrong result; a peer that crashed is measured again next time."""
        if "min" in answer or "wrong" in answer:
            self.answers[key] = answer
            self.file.write_text(json.dumps(self.answers, indent=0))


def run(plan: Plan, folder: Path, done: dict[str, Any], again: bool) -> dict[str, Any]:
    """Measure every row of `plan` that is not in `done`; returns the report, which is also written to run.json."""
    host = machine() | {"command": "python -m " + " ".join(["benchmarks.corpus", *sys.argv[1:]])}
    report = done or {"plan": asdict(plan), "machine": host, "limits": {}, "rows": {}}
    rows = rows_of(plan.seed, plan.count)
    kept = Kept(folder / "peers.json", host, again)
    available = sorted(os.sched_getaffinity(0))
    maker = Seated("subjects", available, folder, plan)
    for count in plan.cores:
        cores = available[-count:]
        name = str(count)
        say(f"{count} cores: limits")
        before = report["limits"].get(name, {})
        report["limits"][name] = measure_limits(cores, folder, argparse.Namespace(patience=plan.patience), before)
        children = {peer: Seated(peer, cores, folder, plan) for peer in plan.peers}
        found: dict[str, Any] = report["rows"].setdefault(name, {})
        missing = [row for row in plan.rows if row not in found]
        for number, row in enumerate(missing):
            say(f"{count} cores: {row} ({number + 1} of {len(missing)})")
            found[row] = _row(rows[row], maker, children, kept, plan)
            (folder / "run.json").write_text(json.dumps(report, indent=1))
            if number % RESTART == RESTART - 1:
                for child in children.values():
                    child.stop()
        for child in children.values():
            child.stop()
    maker.stop()
    say("")
    return report


def _row(row: Row, maker: Seated, children: Mapping[str, Seated], kept: Kept, plan: Plan) -> dict[str, Any]:
    """The answers of all contenders, and the work of the row. A failing row is reported, not raised."""
    failed = maker.ask(300, do="subject", row=row.name)
    place = maker.folder / row.file
    if not (place / "facts.json").exists():
        return {"failed": failed.get("absent", "no reference")}
    facts = json.loads((place / "facts.json").read_text())
    model = place / "model.onnx"
    number = zlib.crc32(model.read_bytes()) if model.exists() else 0
    answers: Answers = {}
    keys = {name: kept.key(row, name, len(child.cores), number) for name, child in children.items()}
    measured = {name: child for name, child in children.items() if name == OWN or keys[name] not in kept.answers}
    for name in children.keys() - measured.keys():
        answers[name] = kept.answers[keys[name]] | {"kept": True}
    answers |= _measure(row, measured, plan)
    for name in measured.keys() - {OWN}:
        kept.add(keys[name], answers[name])
    profile = children[OWN].ask(60, do="profile") if "min" in answers[OWN] else {}
    return {"family": row.family, "dtype": row.dtype, "fresh": row.fresh, "flops": facts["flops"],
            "bytes": facts["bytes"], "exported": "not exported" not in facts, "answers": answers,
            "kernels": profile.get("kernels", [])}


def _measure(row: Row, children: Mapping[str, Seated], plan: Plan) -> Answers:
    """Prepare the row in every process, then measure them alternately."""
    answers = {name: child.ask(plan.timeout, do="prepare", row=row.name) for name, child in children.items()}
    times: dict[str, list[float]] = {name: [] for name, answer in answers.items() if "seconds" in answer}
    patience = time.monotonic() + plan.patience
    for _ in range(plan.rounds):
        for name in list(times):
            await_quiet(patience)
            answer = children[name].ask(60, do="round", seconds=plan.slot)
            if "times" in answer:
                times[name] += answer["times"]
            else:
                answers[name] = answer
                del times[name]
    for name, each in times.items():
        answers[name] |= {"min": min(each), "median": statistics.median(each)}
    return answers
