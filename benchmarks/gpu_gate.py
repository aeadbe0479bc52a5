"""Whether 60 rows of the corpus, of all families, are as fast on this GPU as before: `python -m benchmarks.gpu gate`.

The figure of a row is the time of a CUDA graph of PyTorch's calls over that of Motet, measured in turns. Rows below
0.97 of their figure in `gpu_gate.json` are measured up to twice more; those that stay below it are named, and the exit
status is 1. `--write` chooses the rows anew, and stores, for this kind of GPU, the lowest figures of three runs. Rows
that need timm or transformers are left out.
"""

from __future__ import annotations

import datetime
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.corpus import gpu
from benchmarks.corpus.networks import zoo
from benchmarks.run import say

FIGURES = Path(__file__).with_name("gpu_gate.json")
COUNT = 60
LIMIT = 0.97
_TIMES = 3  # runs
_MISSING = 6  # rows of the stored ones may have no figure
_PEER = "graph"
_SECONDS = 280.0  # for all runs
_DEVICE = "cuda:0"

Figures = Mapping[str, float | str]  # by row; a text says why there is none


def chosen(number: int = COUNT) -> list[str]:
    """The names of `number` rows: of each family about as large a share as of all, at least one, evenly spread."""
    absent = {row.name.removesuffix(" bf16") for row in zoo.rows()}
    families: dict[str, list[str]] = defaultdict(list)
    for row in gpu.gpu_corpus(0, 0).values():
        if row.name.removesuffix(" bf16") not in absent:
            families[row.family].append(row.name)
    total = sum(map(len, families.values()))
    places = [(abs((place * number / total + 0.5) % 1 - 0.5) if place else -1.0, name)
              for names in families.values() for place, name in enumerate(names)]
    return [name for _, name in sorted(places)[:number]]


def slower(before: Figures, now: Figures) -> list[str]:
    """A line for each row that is slower than before, that has no figure any more, or that was not measured."""
    lines: list[str] = []
    for name, figure in before.items():
        found = now.get(name, "not measured")
        if isinstance(figure, str):
            continue
        if isinstance(found, str):
            lines.append(f"{name}: {found}; {figure:.2f} before")
        elif found < LIMIT * figure:
            lines.append(f"{name}: {found:.2f}, {found / figure:.2f} of the {figure:.2f} of before")
    return lines


def measure(names: Sequence[str], folder: Path, until: float) -> tuple[str, Figures]:
    """The GPU, and the figures of rows; artifacts and results are kept in `folder`."""
    plan = gpu.Plan(0, 0, names, _DEVICE, [_PEER], rounds=7, slot=0.02)
    (folder / gpu.RESULTS).unlink(missing_ok=True)
    gpu.prepare_all(plan, folder, gpu.expression(), until, peers=False)
    gpu.run(plan, folder, until)
    report = gpu.report(plan, folder)
    rows = report["rows"][_DEVICE]
    machine = next(line["machine"] for line in gpu.read(folder / gpu.RESULTS) if "machine" in line)
    return machine["device"], {name: _figure(rows[name]["answers"]) for name in names if name in rows}


def _figure(answers: Mapping[str, Mapping[str, Any]]) -> float | str:
    own, peer = answers["Motet"], answers.get(_PEER, {})
    if "min" in own and "min" in peer:
        return round(peer["min"] / own["min"], 4)
    return str(own.get("wrong") or own.get("absent") or peer.get("absent") or "not measured")


def run(folder: Path, write: bool) -> int:
    """The gate; returns the exit status."""
    folder.mkdir(parents=True, exist_ok=True)
    until = time.time() + _SECONDS
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    names = chosen() if write or not known else list(next(iter(known.values()))["rows"])
    device, now = measure(names, folder, until)
    if write:
        return _write(device, known, [now, *(measure(names, folder, until)[1] for _ in range(_TIMES - 1))])
    before: Figures = known.get(device, {}).get("rows", {})
    for _ in range(_TIMES - 1):
        if again := [line.partition(": ")[0] for line in slower(before, now)]:
            say(f"{len(again)} rows again")
            now = best(now, measure(again, folder, until)[1])
    if not before:
        print(f"{device}: no figures of before; --write stores those of today: {json.dumps(now, ensure_ascii=False)}")
        return 1
    lines = slower(before, now)
    print("\n".join([*lines, f"{device}: {len(lines)} of {len(before)} rows slower than {LIMIT} of before"]))
    return 1 if lines else 0


def best(first: Figures, second: Figures) -> Figures:
    """The larger figure of each row."""
    numbers = {name: [found for found in (first.get(name), second.get(name)) if isinstance(found, float)]
               for name in {**first, **second}}
    return {name: max(found) if found else first.get(name, second.get(name, "")) for name, found in numbers.items()}


def _write(device: str, known: dict[str, Any], runs: Sequence[Figures]) -> int:
    """Store what every run has reached."""
    rows = {name: min((found for figures in runs if isinstance(found := figures.get(name), float)), default=figure)
            for name, figure in runs[0].items()}
    if sum(isinstance(figure, float) for figure in rows.values()) < COUNT - _MISSING:
        print(f"{device}: too few rows have figures; nothing is stored: {json.dumps(rows, ensure_ascii=False)}")
        return 1
    known[device] = {"date": f"{datetime.date.today()}", "rows": rows}
    FIGURES.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    print(f"{FIGURES}: {len(rows)} rows of {device}")
    return 0
