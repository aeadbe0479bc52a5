"""The tables of `benchmarks.gpu`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu_rows import Row

# Operations per second without sparsity, of SXM modules: NVIDIA H100 and H200 data sheets.
_HOPPER = {"bf16": 989.4e12, "tf32": 494.7e12, "f32": 66.9e12, "f64": 66.9e12, "f16": 989.4e12, "int8": 1978.9e12}
PEAKS = {"H100": _HOPPER, "H200": _HOPPER, "A100": {"bf16": 312e12, "tf32": 156e12, "f32": 19.5e12, "int8": 624e12}}
_COSTLY = ("products", "networks")  # groups whose costs are listed
_CALLED = ("Motet", "eager", "graph", "compile", "reduce-overhead", "JAX")  # contenders whose calls are
_STARTED = ("Motet", "eager", "compile")
_ABOUT = """\
*Eager* is PyTorch as it is, whose products are cuBLAS's; *graph* a CUDA graph of it, *compile+graph* one of what
`torch.compile` makes, *max-autotune* likewise, of rows that were given to it; *reduce-overhead* copies its inputs.
JAX and IREE are timed by the clock over calls begun one after the other, as events do not see their streams; *JAX*
has the rows that are written for it, *IREE* gets what Motet gets, for `sm_89` or `sm_80`, the newest that it has, as
text that the driver compiles. *By* is the fastest of the peers."""
_WRONG = 2.0  # relative to the error of PyTorch's own result


def markdown(every: Sequence[Row], lines: Sequence[Mapping[str, Any]], compiled: Mapping[str, Any]) -> str:
    machines = [line["machine"] for line in lines if "machine" in line]
    if not machines:
        return "nothing was measured\n"
    machine = {**machines[0], "bandwidth": max(each["bandwidth"] for each in machines)}
    found = merged(lines)
    others = "".join(f", {name} {machine[name]}" for name in ("JAX", "IREE") if machine.get(name))
    parts = [
        f"{machine['device']}, {machine['date']}, PyTorch {machine['torch']}, CUDA {machine['cuda']}{others}; a copy "
        f"moves {machine['bandwidth'] / 1e9:.0f} GB/s. Device time, µs per call, the fastest round.", "", _ABOUT, ""]
    gains: dict[str, list[float]] = {}
    for group in dict.fromkeys(row.group for row in every):
        chosen = [row for row in every if row.group == group and row.name in found]
        if chosen:
            lines_of_group, gains[group] = _table(chosen, found, machine)
            parts += [f"### {group.capitalize()}", "", *lines_of_group, ""]
    parts += [*_means(gains), "", *_costs(every, found, compiled), "", *_starts(every, lines), ""]
    return "\n".join([*parts, *_absences(every, found, compiled)]).rstrip() + "\n"


def merged(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The results of each row; for a contender measured by several runs, the faster time."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        if "row" not in line:
            continue
        before = found.setdefault(line["row"], {"peers": {}})
        if "error" in line:
            before.setdefault("error", line["error"])
        for name, answer in line.get("peers", {}).items():
            earlier = before["peers"].get(name)
            if earlier is None or answer.get("min", math.inf) < earlier.get("min", math.inf):
                before["peers"][name] = answer
    for row in found.values():
        if any("min" in answer for answer in row["peers"].values()):
            row.pop("error", None)
    return found


def limit_of(row: Row, machine: Mapping[str, Any]) -> float:
    peaks = next((peaks for name, peaks in PEAKS.items() if name in machine["device"]), None)
    by_operations = row.flops / peaks[row.unit] if peaks else 0.0
    return max(by_operations, row.bytes / machine["bandwidth"])


def _table(chosen: Sequence[Row], found: Mapping[str, Any], machine: Mapping[str, Any]
           ) -> tuple[list[str], list[float]]:
    """The table of a group, and the ratio of the best peer's time to Motet's, row by row."""
    names = list(dict.fromkeys(name for row in chosen for name, answer in found[row.name].get("peers", {}).items()
                               if "min" in answer))
    peers = [name for name in names if not name.startswith("Motet")]
    own_names = [name for name in names if name.startswith("Motet")]
    head = ["work", *own_names, *peers, "limit", "best peer ÷ Motet", "by", "limit ÷ Motet"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 3) + "---|---:|"]
    ratios: list[float] = []
    notes: list[str] = []
    for row in chosen:
        answers = found[row.name].get("peers", {})
        if why := found[row.name].get("error"):
            notes.append(f"- {row.title}: {why}")
        times = {name: answers[name]["min"] for name in names if "min" in answers.get(name, {})}
        if is_wrong(answers, row.tolerance):
            notes.append(f"- {row.title}: Motet's result is off by {answers['Motet']['error']:.2g}")
            times.pop("Motet", None)
        for name in peers:
            if name in times and is_far(answers[name], row.tolerance):
                notes.append(f"- {row.title}: the result of {name} is off by {answers[name]['error']:.2g}")
                times.pop(name)
        if "absent" in answers.get("Motet", {}):
            notes.append(f"- {row.title}: {answers['Motet']['absent']}")
        own = min((times[name] for name in own_names if name in times), default=None)
        limit = limit_of(row, machine)
        best, by = min(((time, name) for name, time in times.items() if name in peers), default=(None, "–"))
        cells = [_cell(times.get(name), min(times.values(), default=0)) for name in (*own_names, *peers)]
        lines.append(f"| {' | '.join([row.title, *cells, _time(limit), _ratio(best, own), by, _ratio(limit, own)])} |")
        if best and own:
            ratios.append(best / own)
    return [*lines, *(["", *notes] if notes else [])], ratios


def _means(gains: Mapping[str, Sequence[float]]) -> list[str]:
    """Geometric means by group, and of all rows."""
    lines = ["### Means", "", "Best peer ÷ Motet (its faster way), geometric mean; *level* is 0.95 to 1.05.", "",
             "| group | rows | mean | ahead | level | behind | least | most |", "|---|" + "---:|" * 7]
    everything = [gain for group in gains.values() for gain in group]
    for name, each in [*gains.items(), ("all", everything)]:
        if each:
            ahead, behind = sum(gain > 1.05 for gain in each), sum(gain < 0.95 for gain in each)
            lines.append(f"| {name} | {len(each)} | {statistics.geometric_mean(each):.2f} | {ahead} "
                         f"| {len(each) - ahead - behind} | {behind} | {min(each):.2f} | {max(each):.2f} |")
    return lines


def is_wrong(answers: Mapping[str, Any], tolerance: float) -> bool:
    """Whether Motet's result is further from the reference than `tolerance` and than rounding explains."""
    own = answers.get("Motet", {}).get("error")
    peer = max(answers.get(name, {}).get("error", 0.0) for name in ("eager", "graph"))
    return own is not None and own > max(tolerance, _WRONG * peer)


def is_far(answer: Mapping[str, Any], tolerance: float) -> bool:
    """Whether a peer's result is wrong: further from the reference than rounding explains."""
    return answer.get("error", 0.0) > max(tolerance, 0.2)


def _cell(seconds: float | None, best: float) -> str:
    if seconds is None:
        return "–"
    return f"**{_time(seconds)}**" if seconds == best else _time(seconds)


def _time(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(one: float | None, other: float | None) -> str:
    return "–" if not one or not other else f"{one / other:.2f}"


def _costs(every: Sequence[Row], found: Mapping[str, Any], compiled: Mapping[str, Any]) -> list[str]:
    """Sizes, load times, and times of calls by the clock."""
    lines = ["### Loading and calling", "",
             "*Load* is from the file to a session in a process that has the GPU, *first* the call after it, *call* a "
             "whole call by the clock, with its wait, and *host* what the host takes to begin one while the GPU has "
             f"nothing to do: {', '.join(_CALLED)}.", "",
             "| work | artifact, KiB | IREE's, KiB | launches | load, ms | first, ms | call, µs | host, µs |",
             "|---|" + "---:|" * 5 + "---|---|"]
    for row in every:
        answers = found.get(row.name, {}).get("peers", {})
        own, about = answers.get("Motet", {}), compiled.get(row.name, {})
        if row.group not in _COSTLY or "min" not in own or "bytes" not in about.get("Motet", {}):
            continue
        size = about.get("IREE", {}).get("bytes")
        calls, hosts = (" · ".join(_or_none(answers.get(name, {}).get(what), 1e6) for name in _CALLED)
                        for what in ("call", "host"))
        lines.append(f"| {row.title} | {about['Motet']['bytes'] >> 10} | {'–' if size is None else size >> 10} "
                     f"| {about['Motet']['commands']} | {own['load'] * 1e3:.0f} | {own['first'] * 1e3:.1f} "
                     f"| {calls} | {hosts} |")
    return lines


def _starts(every: Sequence[Row], lines: Sequence[Mapping[str, Any]]) -> list[str]:
    cold = {line["cold"]: line for line in lines if "cold" in line}
    if not cold:
        return []
    rows = [f"| {row.title} | {' | '.join(_or_none(cold[row.name].get(way), 1) for way in _STARTED)} |"
            for row in every if row.name in cold]
    return ["### Cold starts", "",
            "Seconds from a fresh process's first line to the first result: imports, weights to the GPU, one call. "
            "Making PyTorch's weights is not counted; `torch.compile` finds its caches on disk filled.", "",
            "| work | Motet | eager | torch.compile |", "|---|---:|---:|---:|", *rows]


def _absences(every: Sequence[Row], found: Mapping[str, Any], compiled: Mapping[str, Any]) -> list[str]:
    """Why IREE and searching peers have no figures: the rows by reason."""
    reasons: dict[str, list[str]] = {}
    for row in every:
        for name in ("IREE", "JAX", "max-autotune"):
            why = found.get(row.name, {}).get("peers", {}).get(name, {}).get("absent")
            if why == "it did not compile":
                why = compiled.get(row.name, {}).get(name, {}).get("error", why)
            if why and why not in ("not searched", "not written for JAX"):
                reasons.setdefault(f"{name}: {' '.join(why.split())[:120]}", []).append(row.title)
    if not reasons:
        return []
    return ["### Without a number", "", *(f"- {why} ({'; '.join(titles)})" for why, titles in reasons.items())]


def _or_none(seconds: float | None, scale: float) -> str:
    return "–" if seconds is None else _time(seconds * scale / 1e6)
