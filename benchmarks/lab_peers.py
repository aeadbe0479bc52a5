"""Searches kernels of the lab by others, too: XTC's MLIR and TVM back ends, and TVM's MetaSchedule.

All have the same operands, as many threads, and as many trials. `heuristic` is what each does without a search: the
compiler's choice of Motet, the highest level of XTC's strategy, the loops as they are of TVM. The trials until one is
within 5 % of a peer's own best are, for the random samples of XTC, the median and the worst of several orders of them,
and for MetaSchedule, whose proposals depend on those before, the trials of its one search.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.xtc_peer import BACKENDS, DIMS, run_there
from motet.lab.operators import OperatorCall, parse_operator
from motet.tools.show import show_seconds

SHARE = 0.05
SEEDS = 5  # orders of random samples
TIME = 300.0  # seconds of one search, without its preparation
PREPARATION = 300.0
COLUMNS = ("kernel", "by", "heuristic", "best", "gain", "trials", "trials to 5 %")
METASCHEDULE = ("matmul", "matmul_relu", "conv2d", "depthwise_conv2d", "softmax")


@dataclass(frozen=True)
class PeerSearch:
    """The seconds without a search, and those of each trial, in order, infinite if it failed; and the last error."""

    heuristic: float
    trials: tuple[float, ...]
    error: str = ""


def peer_rows(text: str, python: str, trials: int) -> list[list[str]]:
    """A row for each peer, as `COLUMNS` has it: figures, or the reason that there are none."""
    call = parse_operator(text)
    if call.dtype != "f32" or call.number("pad", 0):
        return [[text, "xtc, metaschedule", "- (the peers have operators of f32 without padding)", *["-"] * 4]]
    rows: list[list[str]] = []
    for name in BACKENDS:
        if call.name not in DIMS:
            rows.append([text, f"xtc {name}", f"- (XTC has no strategy for {call.name})", *["-"] * 4])
            continue
        found = search_peer(text, python, "benchmarks.xtc_search", trials, name)
        rows.append(peer_row(text, f"xtc {name}", found, ordered=False))
    if call.name not in METASCHEDULE:
        return [*rows, [text, "tvm metaschedule", f"- (not described to TVM: {call.name})", *["-"] * 4]]
    found = search_peer(text, python, "benchmarks.metaschedule_search", trials)
    return [*rows, peer_row(text, "tvm metaschedule", found, ordered=True)]


def search_peer(text: str, python: str, module: str, trials: int, backend: str = "") -> PeerSearch:
    call = parse_operator(text)
    threads = len(os.sched_getaffinity(0))
    request = {"operator": call.name, "stride": call.number("stride", 1), "trials": trials, "seconds": TIME,
               "threads": threads, "backend": backend}
    with tempfile.TemporaryDirectory(prefix="peer-") as folder:
        lines, error = run_there(python, module, request, operands_of(call), folder, TIME + PREPARATION, threads)
    return read_search(lines, error)


def operands_of(call: OperatorCall) -> list[Any]:
    """Random arrays of f32 for the operands of an operator."""
    shapes = call.shapes
    if call.name in ("matmul", "matmul_relu"):
        (m, n, k), = shapes
        shapes = (m, k), (k, n)
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def read_search(lines: Sequence[str], error: str) -> PeerSearch:
    """The search that a peer printed; lines that others print among them are not counted."""
    found: list[dict[str, Any]] = [json.loads(line) for line in lines if line.startswith('{"')]
    seconds = [float(each.get("seconds", math.inf)) for each in found]
    errors = [str(each["error"]) for each in found if "error" in each]
    return PeerSearch(seconds[0] if seconds else math.inf, tuple(seconds[1:]), error or (errors[-1] if errors else ""))


def peer_row(text: str, by: str, found: PeerSearch, ordered: bool) -> list[str]:
    why = f"- ({found.error or 'no figure'})"
    heuristic = show_seconds(found.heuristic) if math.isfinite(found.heuristic) else why
    measured = [each for each in found.trials if math.isfinite(each)]
    if not measured:
        return [text, by, heuristic, why, "-", str(len(found.trials)), "-"]
    best = min(measured)
    gain = f"{found.heuristic / best:.2f}" if math.isfinite(found.heuristic) else "-"
    count = str(len(found.trials)) + (f" ({len(found.trials) - len(measured)} failed)"
                                      if len(measured) < len(found.trials) else "")
    return [text, by, heuristic, show_seconds(best), gain, count, trials_to(found.trials, ordered)]


def trials_to(seconds: Sequence[float], ordered: bool) -> str:
    """The trials until one is within `SHARE` of the best: in this order, or the median and the worst of several."""
    orders = [np.array(seconds)] if ordered else [np.random.default_rng(seed).permutation(seconds)
                                                  for seed in range(SEEDS)]
    found = sorted(int(np.argmax(each <= min(seconds) * (1 + SHARE))) + 1 for each in orders)
    return str(found[0]) if ordered else f"{found[len(found) // 2]} / {found[-1]}"
