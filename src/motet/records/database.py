"""The database of records: one SQLite file, for any number of kernels, targets and machines.

`PRAGMA application_id` identifies the file as Motet's, `PRAGMA user_version` the version of its tables. A record that
is added again, with the schedule, machine and Motet version of an earlier one, is merged with it (`record.merged`).
Several processes may write at the same time: each addition is one transaction.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path

import msgspec

from motet.artifact.files import read_named, write_atomically
from motet.artifact.kernel_schedules import distance
from motet.decoding import decode_json
from motet.errors import OptionError
from motet.records.record import Record, merged
from motet.version import VERSION

APPLICATION, TABLES = 0x4D6F7465, 2  # "Mote"
_READABLE = (1,)  # versions with the same tables, whose records lack fields that have defaults
_MAGIC = b"SQLite format 3\0"
_SCHEMA = """
CREATE TABLE records (
  identity TEXT PRIMARY KEY, kernel TEXT NOT NULL, target TEXT NOT NULL, machine TEXT NOT NULL, motet TEXT NOT NULL,
  form TEXT NOT NULL, seconds REAL, content TEXT NOT NULL
);
CREATE INDEX by_kernel ON records (kernel, target, seconds);
CREATE INDEX by_form ON records (form, target, seconds);
"""


def is_database(path: str | Path) -> bool:
    """Whether a file is one of SQLite's."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


class Database:
    """An open database. Raises OptionError if `path` is not one, or is of another version."""

    def __init__(self, path: str | Path, create: bool = False) -> None:
        self.path = str(path)
        if not Path(path).exists() and not create:
            raise OptionError(f"{path}: no such file; expected a database that motet lab explore --db FILE writes")
        if Path(path).exists() and Path(path).is_file() and Path(path).stat().st_size and not is_database(path):
            raise OptionError(f"{path}: not a database; expected one that motet lab explore --db FILE writes")
        with self._told():
            self._connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            if create and not self._pragma("user_version") and not self._pragma("application_id"):
                self._begin()
            self._check()

    def _begin(self) -> None:
        """Make the tables, unless another process has just made them."""
        with self._transaction():
            if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                for statement in _SCHEMA.split(";"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
                self._connection.execute(f"PRAGMA user_version = {TABLES}")

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        """All or nothing of what is written inside, while no other process writes."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk ends the transaction itself
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _check(self) -> None:
        if self._pragma("application_id") != APPLICATION:
            raise OptionError(f"{self.path}: a database of another program; expected one that motet lab explore writes")
        version = self._pragma("user_version")
        if version in _READABLE:
            with contextlib.suppress(sqlite3.OperationalError):  # a file that may only be read
                self._connection.execute(f"PRAGMA user_version = {TABLES}")
        elif version != TABLES:
            raise OptionError(f"{self.path}: a database of version {version}; expected {TABLES}; export it with the "
                              "Motet that wrote it (motet lab records export), and import that here")

    def _pragma(self, name: str) -> int:
        return self._connection.execute(f"PRAGMA {name}").fetchone()[0]

    @contextlib.contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise OptionError(f"{self.path}: cannot be used as a database: {error}") from None

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def add(self, records: Iterable[Record]) -> int:
        """Add records, and return how many are new or change what was known. Raises OptionError if the file cannot be
        written, for example because the disk is full."""
        with self._told(), self._transaction():
            return sum(self._put(record) for record in records)

    def _put(self, record: Record) -> bool:
        found = self._connection.execute("SELECT content FROM records WHERE identity = ?", [record.identity]).fetchone()
        old = None if found is None else self._decoded(found[0])
        new = record if old is None else merged(old, record)
        if new == old:
            return False
        self._connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (
            new.identity, new.kernel, new.target, new.machine, new.motet, new.form, new.seconds,
            msgspec.json.encode(new).decode(),
        ))
        return True

    def _decoded(self, content: str) -> Record:
        try:
            return decode_json(content, Record)
        except msgspec.DecodeError as error:
            raise OptionError(f"{self.path}: damaged: {error}") from None

    def query(self, **wanted: str) -> list[Record]:
        """The records with these values of `kernel`, `target`, `machine`, `motet` and `form`, the fastest first, failed
        ones last."""
        unknown = wanted.keys() - {"kernel", "target", "machine", "motet", "form"}
        assert not unknown, unknown
        where = " AND ".join(f"{name} = ?" for name in wanted) or "1"
        with self._told():
            rows = self._connection.execute(
                f"SELECT content FROM records WHERE {where} ORDER BY seconds IS NULL, seconds, identity",
                list(wanted.values()),
            ).fetchall()
        return [self._decoded(content) for (content,) in rows]

    def best(self, machine: str = "", **wanted: str) -> list[Record]:
        """The best record of each kernel and target, of those that `query` finds: one whose results were validated
        before others, then one of `machine`, then one of this version of Motet, then the fastest."""
        found: dict[tuple[str, str], Record] = {}
        for record in self.query(**wanted):
            if record.seconds is None:
                continue
            key = record.kernel, record.target
            if key not in found or _rank(record, machine) < _rank(found[key], machine):
                found[key] = record
        return list(found.values())

    def near(self, form: str, target: str, extents: Sequence[int], most: int) -> list[Record]:
        """The fastest records of kernels that differ from a kernel in their extents only, the nearest extents
        first: starting points of a search."""
        best: dict[tuple[str, str], Record] = {}
        for record in self.query(form=form, target=target):
            if record.seconds is not None and record.trusted:
                best.setdefault((record.kernel, record.machine), record)
        return sorted(best.values(), key=lambda record: distance(record.extents, extents))[:most]

    def export(self, path: str | Path) -> int:
        """Write all records as lines of JSON, and return how many."""
        records = self.query()
        write_atomically(Path(path), [memoryview(msgspec.json.encode(each) + b"\n") for each in records])
        return len(records)


def _rank(record: Record, machine: str) -> tuple[bool, bool, bool, float]:
    assert record.seconds is not None
    return not record.trusted, record.machine != machine, record.motet != VERSION, record.seconds


def read_lines(path: str | Path) -> list[Record]:
    """The records in a file of JSON lines. Raises OptionError, with the line, for an invalid one."""
    found: list[Record] = []
    for number, line in enumerate(read_named(path, str(path)).splitlines(), 1):
        try:
            found.append(decode_json(line, Record))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OptionError(f"{path}:{number}: no record: {error}; expected a line of motet lab records export"
                              ) from None
    return found
