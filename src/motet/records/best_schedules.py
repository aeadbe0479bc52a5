"""The best schedules of a database, in the form of a file of schedules: what `--option schedules=DB` compiles with."""

from __future__ import annotations

import logging
from pathlib import Path

from motet.artifact.kernel_schedules import ScheduledKernel, encode_schedules
from motet.errors import DeviceError
from motet.records.database import Database
from motet.records.machine import fingerprint
from motet.records.record import Record
from motet.runtime.device import find_device
from motet.version import VERSION

_log = logging.getLogger("motet")


def best_schedules(path: str | Path) -> bytes:
    """The best schedule of each kernel and target, measured on this machine if there is one. Warns of those that were
    measured on other machines, or by other versions of Motet. Raises OptionError if `path` is no database."""
    here = this_host()
    with Database(path) as database:
        best = [record for record in database.best(here) if record.trusted]
    kernels: list[ScheduledKernel] = []
    away: dict[str, int] = {}
    for record in best:
        host = record.target.startswith("host:")
        if host and record.machine != here:
            away[f"on {record.machine}"] = away.get(f"on {record.machine}", 0) + 1
        if record.motet != VERSION:
            away[f"by Motet {record.motet}"] = away.get(f"by Motet {record.motet}", 0) + 1
        kernels.append(ScheduledKernel(
            record.kernel, record.target, record.schedule, [], record.about, _origin(path, record),
            record.form, record.extents,
        ))
    for where, count in away.items():
        _log.warning("%s: the best records of %d kernels were measured %s, not here; motet lab explore measures again",
                     path, count, where)
    return encode_schedules(kernels)


def _origin(path: str | Path, record: Record) -> str:
    seconds = record.seconds or 0.0
    return f"{Path(path).name}: {seconds * 1e6:.3g} µs on {record.machine}, by {record.origin or 'motet lab evaluate'}"


def this_host() -> str:
    """The fingerprint of this machine, "" if the host cannot be probed."""
    try:
        return fingerprint(find_device("host"))
    except DeviceError:
        return ""
