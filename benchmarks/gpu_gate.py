"""Whether 60 rows of the corpus, of all families, are as fast on this GPU as before: `python -m benchmarks.gpu gate`.

The figure of a row is the time of a CUDA graph of PyTorch's calls over that of Motet, measured in turns. Rows below
0.97 of their figure in `gpu_gate.json` are measured up to twice more; those that stay below it are named, and the exit
status is 1. Rows whose machine code is what it was are not compared: the time of 3 µs varies by 15 %, from day to day,
for equal code. `--write` chooses the rows anew, and stores, for this kind of GPU, the lowest figures of three runs, and
a checksum of the code. Rows that need timm or transformers are left out.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.corpus import gpu
from benchmarks.corpus.networks import zoo
from benchmarks.run import say
from motet.artifact.reader import Artifact

FIGURES = Path(__file__).with_name("gpu_gate.json")
COUNT = 60
LIMIT = 0.97
_TIMES = 3  # runs
_MISSING = 6  # rows of the stored ones may have no figure
_PEER = "graph"
_SECONDS = 280.0  # for all runs
_DEVICE = "cuda:0"



class Figure(NamedTuple):
    """The figure of a row, or why there is none, and a checksum of its machine code."""

    value: float | str
    code: str = ""


Figures = Mapping[str, Figure]  # by row


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
    for name, (figure, code) in before.items():
        found, own = now.get(name, Figure("not measured"))
        if isinstance(figure, str):
            continue
        if isinstance(found, str):
            lines.append(f"{name}: {found}; {figure:.2f} before")
        elif found < LIMIT * figure and (not code or code != own):
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
    files = {row.name: folder / f"{row.file}.motet" for row in gpu.gpu_corpus(0, 0).values() if row.name in rows}
    return machine["device"], {name: Figure(_figure(rows[name]["answers"]), code_of(files[name]))
                               for name in names if name in rows}


def code_of(path: Path) -> str:
    """A checksum of the machine code of an artifact; "" if there is none."""
    if not path.exists():
        return ""
    artifact = Artifact.open(path)
    members = sorted({name for variant in artifact.manifest.variants for name in variant.objects})
    found = hashlib.sha256()
    for name in members:
        found.update(artifact.member(name))
    return found.hexdigest()[:16]


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
    before = {name: Figure(*stored) for name, stored in known.get(device, {}).get("rows", {}).items()}
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
    return {name: max((figures[name] for figures in (first, second) if name in figures), key=_number)
            for name in {**first, **second}}


def _number(figure: Figure) -> float:
    return figure.value if isinstance(figure.value, float) else 0.0


def _text(known: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON with a line for each row."""
    devices: list[str] = []
    for device, found in known.items():
        rows = ",\n".join(f"   {json.dumps(name, ensure_ascii=False)}: {json.dumps(figure, ensure_ascii=False)}"
                          for name, figure in found["rows"].items())
        devices.append(f' "{device}": {{\n  "date": "{found["date"]}",\n  "rows": {{\n{rows}\n  }}\n }}')
    return "{\n" + ",\n".join(devices) + "\n}\n"


def _write(device: str, known: dict[str, Any], runs: Sequence[Figures]) -> int:
    """Store what every run has reached."""
    found = {name: [figures[name] for figures in runs if _number(figures.get(name, Figure("")))] for name in runs[0]}
    rows = {name: min(figures, default=runs[0][name], key=_number) for name, figures in found.items()}
    if sum(isinstance(figure.value, float) for figure in rows.values()) < COUNT - _MISSING:
        print(f"{device}: too few rows have figures; nothing is stored: {json.dumps(rows, ensure_ascii=False)}")
        return 1
    known[device] = {"date": f"{datetime.date.today()}", "rows": rows}
    FIGURES.write_text(_text(known))
    print(f"{FIGURES}: {len(rows)} rows of {device}")
    return 0
