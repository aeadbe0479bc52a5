"""Reads trials, grouped by kernel, from a database or from XTC's results (CSV)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from motet.errors import OptionError
from motet.records.database import Database, is_database
from motet.records.record import Record

_XTC = ("X", "time", "peak", "backend")  # the last columns of XTC's results; those before are its sample's names


@dataclass(frozen=True)
class MeasuredTrial:
    """One measured schedule: its parameters, and its seconds."""

    parameters: Mapping[str, str]
    seconds: float


@dataclass(frozen=True)
class TrialGroup:
    """The trials of one kernel, in order. `flops` and `bytes` are 0 if unknown; `failed` is the number of failures."""

    key: str
    title: str
    trials: tuple[MeasuredTrial, ...]
    flops: int = 0
    bytes: int = 0
    failed: int = 0
    peak: float | None = None  # seconds at the peak rate


def read_trials(path: str) -> list[TrialGroup]:
    """The trials in a file. Raises OptionError if it is neither a database nor XTC's results."""
    if not Path(path).is_file():
        raise OptionError(f"{path}: no such file; expected a database, or XTC's results (CSV)")
    if is_database(path):
        with Database(path) as database:
            return _of_records(database.query())
    if path.endswith(".csv"):
        return _of_csv(path)
    raise OptionError(f"{path}: neither a database nor XTC's results (.csv)")


def _of_records(records: Iterable[Record]) -> list[TrialGroup]:
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        found.setdefault((record.kernel, record.target), []).append(record)
    groups: list[TrialGroup] = []
    for (key, target), own in found.items():
        own.sort(key=lambda record: (record.when, record.trial))
        done = [record for record in own if record.seconds is not None]
        trials = tuple(MeasuredTrial(_flat(each.schedule), each.seconds) for each in done if each.seconds is not None)
        first = own[0]
        title = f"{first.subject or first.about} · {first.name} · {target} · {first.machine}"
        if trials:
            groups.append(TrialGroup(key, title, trials, first.flops, first.bytes, len(own) - len(done)))
    return groups


def _flat(schedule: object, prefix: str = "") -> dict[str, str]:
    """The fields of a schedule, those of nested ones with their places."""
    if isinstance(schedule, Mapping):
        items: Iterable[tuple[str, object]] = ((str(key), value) for key, value in schedule.items())
    elif isinstance(schedule, list):
        items = ((str(number), value) for number, value in enumerate(schedule))
    else:
        return {prefix: str(schedule)}
    found: dict[str, str] = {}
    for key, value in items:
        found |= _flat(value, f"{prefix}.{key}" if prefix else key)
    return found


def _of_csv(path: str) -> list[TrialGroup]:
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            names = list(reader.fieldnames or ())
            if tuple(names[-len(_XTC) :]) != _XTC:
                raise OptionError(f"{path}: columns {', '.join(names) or 'none'}; expected XTC's results, whose last "
                                  f"columns are {', '.join(_XTC)}")
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OptionError(f"{path}: cannot be read: {str(error).lower()}") from None
    groups: dict[str, list[MeasuredTrial]] = {}
    peaks: dict[str, float] = {}
    for number, row in enumerate(rows, 2):
        try:
            seconds, share = float(row["time"]), float(row["peak"])
        except (TypeError, ValueError):
            raise OptionError(f"{path}:{number}: time and peak are not numbers") from None
        if seconds > 0:
            trial = MeasuredTrial({name: row[name] for name in names[: -len(_XTC)]}, seconds)
            groups.setdefault(row["backend"], []).append(trial)
            peaks[row["backend"]] = seconds * share
    return [TrialGroup(name, f"{Path(path).name} · XTC {name}", tuple(trials), peak=peaks[name])
            for name, trials in groups.items()]
