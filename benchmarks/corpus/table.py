"""Prints results as tables: all rows, the mean, the shares ahead, level and behind, the slowest rows with reasons.

A row's ratio is the fastest call of the best peer in equal precision, divided by Motet's. Its roof is the larger of
operations over peak multiply-add throughput and bytes over memory bandwidth, measured in the same run; peaks of GPUs
are those of their data sheets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.corpus.peers import IMPRECISE

OWN = "Motet"
LEVEL = 0.05
WORST = 10
# Peak throughput relative to f32, without AMX, which can exceed it.
RATES = {"f64": 0.5, "f32": 1.0, "f16": 2.0, "bf16": 2.0, "int8": 4.0, "int4": 1.0}
# Goals: the share of rows near the best peer or the roof.
NEAR_PEER, NEAR_ROOF, SHARE, ROOM = 0.95, 0.9, 0.95, 0.8


@dataclass(frozen=True)
class Goals:
    """The minimum ratio of a row, and the mean over rows whose best peer is far from the roof."""

    least: float
    mean: float


ON_HOST, ON_GPU = Goals(0.85, 1.25), Goals(0.8, 1.15)


@dataclass(frozen=True)
class Result:
    """A row on a number of cores or a GPU: seconds of Motet, of the best peer, and of the roof."""

    name: str
    entry: Mapping[str, Any]
    own: float | None
    peer: float | None
    by_median: float | None
    limit: float

    @property
    def ratio(self) -> float | None:
        """The time of the best peer relative to Motet; 0 if only Motet has no result, None if no peer has one."""
        if self.peer is None:
            return None
        return 0.0 if self.own is None else self.peer / self.own

    @property
    def roof(self) -> float:
        """Motet's share of the roof."""
        return 0.0 if self.own is None else self.limit / self.own


def results(rows: Mapping[str, Any], limits: Mapping[str, Any]) -> list[Result]:
    """The results for one number of cores or device, without rows that could not be created."""
    return [_result(name, entry, limits) for name, entry in rows.items() if "answers" in entry]


def _result(name: str, entry: Mapping[str, Any], limits: Mapping[str, Any]) -> Result:
    answers = entry["answers"]
    precise = [answer for peer, answer in answers.items() if peer != OWN and peer not in IMPRECISE and "min" in answer]
    own = answers.get(OWN, {})
    best = min((answer["min"] for answer in precise), default=None)
    median = min((answer["median"] for answer in precise), default=None)
    rate = limits["peaks"].get(entry["dtype"]) if "peaks" in limits else RATES[entry["dtype"]] * limits["peak"]
    limit = max(entry["flops"] / rate if rate else 0.0, entry["bytes"] / limits["bandwidth"])
    by_median = median / own["median"] if median is not None and "median" in own else None
    return Result(name, entry, own.get("min"), best, by_median, limit)


def markdown(report: Mapping[str, Any]) -> str:
    host, plan = report["machine"], report["plan"]
    versions = ", ".join(f"{name} {number}" for name, number in host["versions"].items() if number != "absent")
    parts = [f"{host['processor']}, {host['cores']} cores, {host['memory']} GiB; {host['date']}; Python "
             f"{host['python']}, {versions}.", "", f"`{host['command']}`; seed {plan['seed']}."]
    for count, rows in report["rows"].items():
        limits = report["limits"][count]
        found = results(rows, limits)
        peak = limits["peaks"].get("f32", 0.0) if "peaks" in limits else limits["peak"]
        parts += ["", f"### {_place(count)}", "",
                  f"Limits: {peak / 1e9:.0f} GFLOP/s in f32, {limits['bandwidth'] / 1e9:.1f} GB/s.", ""]
        peers = plan["peers"]
        goals = ON_HOST if count.isdecimal() else ON_GPU
        parts += [*_summary(found, goals), "", *_worst(found), "", *_rows(found, peers), *_failures(rows, peers)]
    return "\n".join(parts) + "\n"


def _place(count: str) -> str:
    if not count.isdecimal():
        return count
    return "One core" if count == "1" else f"{count} cores"


def _summary(found: Sequence[Result], goals: Goals) -> Iterator[str]:
    compared = [result for result in found if result.ratio is not None]
    ratios = [result.ratio or 0.0 for result in compared]
    if not compared:
        yield "No row has both a peer and a result."
        return
    ahead = sum(ratio > 1 + LEVEL for ratio in ratios)
    behind = sum(ratio < 1 - LEVEL for ratio in ratios)
    total = len(ratios)
    medians = [result.by_median for result in compared if result.by_median is not None]
    level = total - ahead - behind
    yield (f"- {total} rows with a peer: ahead in {ahead / total:.0%}, level in {level / total:.0%}, behind in "
           f"{behind / total:.0%}.")
    yield f"- Mean of best peer ÷ Motet (geometric): {_mean(ratios):.2f}; by medians {_mean(medians):.2f}."
    families = dict.fromkeys(str(result.entry["family"]) for result in compared)
    means = {family: _mean([result.ratio or 0.0 for result in compared if result.entry["family"] == family])
             for family in families}
    yield "- By family: " + ", ".join(
        f"{family} {mean:.2f}" for family, mean in sorted(means.items(), key=lambda each: each[1])) + "."
    yield from _goals(compared, goals)


def _goals(compared: Sequence[Result], goals: Goals) -> Iterator[str]:
    near = [(r.ratio or 0.0) >= NEAR_PEER or r.roof >= NEAR_ROOF for r in compared]
    share, least = sum(near) / len(near), min(result.ratio or 0.0 for result in compared)
    roomy = [r.ratio or 0.0 for r in compared if r.peer is not None and r.limit / r.peer < ROOM]
    mean = _mean(roomy)
    for text, met in (
        (f"{share:.0%} of rows at {NEAR_PEER} of the best peer or {NEAR_ROOF} of the roof (goal {SHARE:.0%})",
         share >= SHARE),
        (f"worst row {least:.2f} (goal {goals.least})", least >= goals.least),
        (f"mean {mean:.2f} over the {len(roomy)} rows whose best peer is below {ROOM} of the roof (goal {goals.mean})",
         mean >= goals.mean),
    ):
        yield f"- {'Met' if met else 'Not met'}: {text}."


def _mean(ratios: Sequence[float]) -> float:
    """The geometric mean; a row without a result counts as 0.01."""
    return math.exp(sum(math.log(max(ratio, 0.01)) for ratio in ratios) / len(ratios)) if ratios else 0.0


def _worst(found: Sequence[Result]) -> Iterator[str]:
    ranked = sorted((result for result in found if result.ratio is not None), key=lambda result: result.ratio or 0.0)
    yield "| worst rows | best peer ÷ Motet | Motet, of the roof | peer, of the roof | reason |"
    yield "|---|---:|---:|---:|---|"
    for result in ranked[:WORST]:
        peer = result.limit / result.peer if result.peer else 0.0
        yield (f"| {_title(result)} | {_ratio(result.ratio)} | {result.roof:.0%} | {peer:.0%} | "
               f"{_reason(result.entry)} |")


def _reason(entry: Mapping[str, Any]) -> str:
    """The kernels that take most of the time, with their classes and their shares of it."""
    own = entry["answers"][OWN]
    if "min" not in own:
        return _why(own)
    kernels = entry["kernels"]
    total = sum(kernel["seconds"] for kernel in kernels) or 1.0
    return "; ".join(
        f"{kernel['class'] or 'copy'} {kernel['seconds'] / total:.0%}"
        f"{f' in {kernel_calls} calls' if (kernel_calls := kernel['calls']) > 1 else ''} ({kernel['source'][:60]})"
        for kernel in kernels[:3] if kernel["seconds"] > 0.1 * total)


def _rows(found: Sequence[Result], peers: Sequence[str]) -> Iterator[str]:
    yield f"| row | {' | '.join(f'{peer}, ms' for peer in peers)} | roof, ms | best peer ÷ Motet | roof ÷ Motet |"
    yield "|---|" + "---:|" * (len(peers) + 3)
    for result in found:
        answers = result.entry["answers"]
        cells = [_ms(answers.get(peer, {}).get("min")) for peer in peers]
        ratio = _ratio(result.ratio)
        yield f"| {_title(result)} | {' | '.join(cells)} | {_ms(result.limit)} | {ratio} | {result.roof:.2f} |"


def _failures(rows: Mapping[str, Any], peers: Sequence[str]) -> Iterator[str]:
    """Missing and wrong results, except for operators that a peer lacks."""
    lines: list[str] = []
    absent: set[str] = set()
    for name, entry in rows.items():
        if "failed" in entry:
            lines.append(f"- {name}: {entry['failed']}")
            continue
        for peer in peers:
            answer = entry["answers"].get(peer, {})
            why = _why(answer)
            if why.startswith("not installed"):
                absent.add(f"- {peer}: {why}")
            elif "min" not in answer and why != "no such operator":
                lines.append(f"- {name}, {peer}: {why}")
    if lines or absent:
        yield ""
        yield from (*sorted(absent), *lines)


def _why(answer: Mapping[str, Any]) -> str:
    return f"wrong: {answer['wrong']}" if "wrong" in answer else str(answer.get("absent", "not measured"))


def _ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 or ratio == 0 else f"{ratio:.3f}"


def _title(result: Result) -> str:
    return f"{result.name}{' (fresh)' if result.entry['fresh'] else ''}"


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.01 else f"{value:.5f}"
