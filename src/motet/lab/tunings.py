"""Tunings of `motet tune` as records: one for each form that was measured."""

from __future__ import annotations

from pathlib import Path

from motet.artifact.tunings import read_tunings
from motet.compiler.kernels.schedule import LaunchesSchedule, LaunchForm, encode_schedule
from motet.records.record import TUNED, Record


def is_tunings(path: str | Path) -> bool:
    """Whether a file looks like tunings."""
    try:
        with Path(path).open("rb") as file:
            return b'"motet_tunings"' in file.read(256)
    except OSError:
        return False


def records_of_tunings(path: str | Path) -> list[Record]:
    """The records of a file of tunings, whose kernels have one launch each. Raises OptionError for an invalid file."""
    found: list[Record] = []
    for tuning in read_tunings(path).kernels:
        for form, microseconds in tuning.microseconds.items():
            schedule = encode_schedule(LaunchesSchedule([LaunchForm(form)]))
            seconds = microseconds * 1e-6
            found.append(Record(
                tuning.kernel, tuning.target, f"{tuning.device}, {tuning.target.partition(':')[0]}", schedule,
                seconds=seconds, samples=[seconds], origin=TUNED, about=tuning.about,
            ))
    return found
