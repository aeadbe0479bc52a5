"""The tables of `benchmarks.gpu`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu_rows import Row

# Operations per second without sparsity, of SXM modules: NVIDIA H100 and H200 data sheets.
_HOPPER = {"bf16": 989.4e12, "tf32": 494.7e12, "f32": 66.9e12, "int8": 1978.9e12}
_PEAKS = {"H100": _HOPPER, "H200": _HOPPER, "A100": {"bf16": 312e12, "tf32": 156e12, "f32": 19.5e12, "int8": 624e12}}
_COSTLY = ("products", "networks")  # groups whose costs are listed
_WRONG = 2.0  # times the error of PyTorch's own result


def markdown(every: Sequence[Row], lines: Sequence[Mapping[str, Any]], compiled: Mapping[str, Any]) -> str:
    machines = [line["machine"] for line in lines if "machine" in line]
    if not machines:
        return "nothing was measured\n"
    machine = {**machines[0], "bandwidth": max(each["bandwidth"] for each in machines)}
    found = merged(lines)
    parts = [
        f"{machine['device']}, {machine['date']}, PyTorch {machine['torch']}, CUDA {machine['cuda']}; a copy moves "
        f"{machine['bandwidth'] / 1e9:.0f} GB/s. Device time, µs per call, the fastest round.", ""]
    for group in dict.fromkeys(row.group for row in every):
        chosen = [row for row in every if row.group == group and row.name in found]
        if chosen:
            parts += [f"### {group.capitalize()}", "", *_table(chosen, found, machine), ""]
    return "\n".join([*parts, *_costs(every, found, compiled)]).rstrip() + "\n"


def merged(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What was found of each row; where several runs have measured a contender, the faster time of it."""
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
    peaks = next((peaks for name, peaks in _PEAKS.items() if name in machine["device"]), None)
    by_operations = row.flops / peaks[row.unit] if peaks else 0.0
    return max(by_operations, row.bytes / machine["bandwidth"])


def _table(chosen: Sequence[Row], found: Mapping[str, Any], machine: Mapping[str, Any]) -> list[str]:
    names = list(dict.fromkeys(name for row in chosen for name in found[row.name].get("peers", {})))
    peers = [name for name in names if not name.startswith("Motet")]
    own_names = [name for name in names if name.startswith("Motet")]
    head = ["work", *own_names, *peers, "limit", "best peer ÷ Motet", "limit ÷ Motet"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    ratios: list[float] = []
    notes: list[str] = []
    for row in chosen:
        answers = found[row.name].get("peers", {})
        if why := found[row.name].get("error"):
            notes.append(f"- {row.title}: {why}")
        times = {name: answers[name]["min"] for name in names if "min" in answers.get(name, {})}
        if is_wrong(answers, row):
            notes.append(f"- {row.title}: Motet's result is off by {answers['Motet']['error']:.2g}")
            times.pop("Motet", None)
        if "absent" in answers.get("Motet", {}):
            notes.append(f"- {row.title}: {answers['Motet']['absent']}")
        own = min((times[name] for name in own_names if name in times), default=None)
        limit = limit_of(row, machine)
        best = min((time for name, time in times.items() if name in peers), default=None)
        cells = [_cell(times.get(name), min(times.values(), default=0)) for name in (*own_names, *peers)]
        lines.append(f"| {' | '.join([row.title, *cells, _time(limit), _ratio(best, own), _ratio(limit, own)])} |")
        if best and own:
            ratios.append(best / own)
    if len(ratios) > 1:
        product = 1.0
        for ratio in ratios:
            product *= ratio ** (1 / len(ratios))
        lines += ["", f"Geometric mean of best peer ÷ Motet (its faster way) over {len(ratios)} rows: {product:.2f}."]
    return [*lines, *(["", *notes] if notes else [])]


def is_wrong(answers: Mapping[str, Any], row: Row) -> bool:
    own = answers.get("Motet", {}).get("error")
    peer = answers.get("eager", {}).get("error", 0.0)
    return own is not None and own > max(row.tolerance, _WRONG * peer)


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
    """Compiling, loading, and whole calls by the clock."""
    lines = ["### Compiling, loading, calling", "",
             "`torch.compile` is timed with the first call, in a process that has compiled before; a call is whole, by "
             "the clock, with its wait.", "",
             "| work | compile, s | torch.compile, s | artifact, KiB | launches | load, ms | first call, ms | a call, "
             "µs | eager | graph |", "|---|" + "---:|" * 9]
    for row in every:
        answers = found.get(row.name, {}).get("peers", {})
        own, about = answers.get("Motet", {}), compiled.get(row.name, {})
        if row.group not in _COSTLY or "min" not in own or "seconds" not in about:
            continue
        peer = answers.get("compile", answers.get("compile+graph", {})).get("ready")
        calls = [answers.get(name, {}).get("call") for name in ("Motet", "eager", "graph")]
        lines.append(
            f"| {row.title} | {about['seconds']:.1f} | {'–' if peer is None else f'{peer:.1f}'} "
            f"| {about['bytes'] >> 10} | {about['commands']} | {own['load'] * 1e3:.0f} | {own['first'] * 1e3:.1f} "
            f"| {' | '.join('–' if call is None else _time(call) for call in calls)} |")
    return lines
