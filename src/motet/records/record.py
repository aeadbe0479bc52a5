"""Records of evaluations, the rows of the database and the lines of its exported files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from motet.version import VERSION

TUNED = "motet tune"


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One evaluation of a schedule. `kernel`, `target`, `machine` and `motet` are its key; `form` is equal for kernels
    that differ in their extents only. `seconds` is the fastest sample, None if the evaluation failed, as `error` says.
    `wrong` says that the results differed from the oracle's. `origin` is the strategy, or the tool, that proposed the
    schedule, `trial` its number in the search, and `point` its parameters in the space that was searched."""

    kernel: str
    target: str
    machine: str
    schedule: dict[str, Any]
    motet: str = VERSION
    seconds: float | None = None
    samples: list[float] = []
    counters: dict[str, float | str] = {}
    code_size: int = 0
    validated: bool = False
    wrong: bool = False
    error: str = ""
    origin: str = ""
    trial: int = 0
    point: dict[str, int | str | bool | None] = {}
    subject: str = ""
    name: str = ""
    about: str = ""
    form: str = ""
    extents: list[int] = []
    dtype: str = ""
    flops: int = 0
    bytes: int = 0
    threads: int = 0
    when: float = 0.0

    @property
    def identity(self) -> str:
        """Equal for records of one schedule of one kernel on one machine."""
        content = [self.kernel, self.target, self.machine, self.motet, canonical(self.schedule)]
        return hashlib.sha256("\0".join(content).encode()).hexdigest()[:32]

    @property
    def trusted(self) -> bool:
        """Whether the results of the schedule were compared with an oracle's. `motet tune` compares all forms."""
        return self.validated or self.origin == TUNED


def merged(old: Record, new: Record) -> Record:
    """What two records of one schedule say together: the faster figure, validated if one of them is. Results that were
    wrong once make the schedule wrong, however fast and correct another run was: its code may have a race."""
    if new.wrong or old.wrong:
        return new if new.wrong else old
    if new.seconds is None:
        return new if old.seconds is None else old
    if old.seconds is None:
        return new
    faster, slower = (new, old) if new.seconds < old.seconds else (old, new)
    return msgspec.structs.replace(
        faster, validated=old.validated or new.validated, counters=slower.counters | faster.counters,
        point=faster.point or slower.point,
    )


def canonical(schedule: dict[str, Any]) -> str:
    """A schedule as text that is equal for equal schedules."""
    return msgspec.json.encode(schedule, order="sorted").decode()


def groups_of(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """Records by their machine and version of Motet: those whose figures can be compared."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        found.setdefault((record.machine, record.motet), []).append(record)
    return found
