import contextlib
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from motet.errors import OptionError
from motet.records.best_schedules import best_schedules
from motet.records.database import TABLES, Database, read_lines
from motet.records.machine import fingerprint
from motet.records.record import Record
from motet.runtime.device import DeviceInfo
from motet.version import VERSION


def record(seconds: float | None, rows: int = 1, **changes: object) -> Record:
    made = Record("k", "host:x86-64-v3", "here", {"class": "x", "rows": rows}, seconds=seconds, form="f",
                  extents=[8, 8], validated=True)
    return msgspec.structs.replace(made, **changes)


def test_a_faster_record_replaces_a_slower_one(tmp_path: Path):
    with Database(tmp_path / "a.db", create=True) as database:
        assert database.add([record(2.0)]) == 1
        assert database.add([record(3.0)]) == 0
        assert database.add([record(1.0), record(None, 2)]) == 2
        assert [each.seconds for each in database.query()] == [1.0, None]


def test_a_failure_does_not_replace_a_figure(tmp_path: Path):
    with Database(tmp_path / "a.db", create=True) as database:
        database.add([record(2.0), record(None)])
        assert database.query()[0].seconds == 2.0


def test_wrong_results_withdraw_a_figure_for_good(tmp_path: Path):
    wrong = record(None, wrong=True, validated=False, error="wrong results")
    with Database(tmp_path / "a.db", create=True) as database:
        assert database.add([record(2.0), wrong]) == 2
        assert database.query() == [wrong]
        assert database.add([record(1.0), record(None)]) == 0
        assert database.best() == []


def test_a_schedule_that_was_validated_once_stays_so(tmp_path: Path):
    with Database(tmp_path / "a.db", create=True) as database:
        database.add([record(2.0, counters={"cycles": 3.0}), record(1.0, validated=False)])
        assert [(each.seconds, each.validated, each.counters) for each in database.best()] == [
            (1.0, True, {"cycles": 3.0})]


def test_best_prefers_validated_records_of_other_machines(tmp_path: Path):
    with Database(tmp_path / "a.db", create=True) as database:
        database.add([record(1.0, 1, validated=False), record(3.0, 2, machine="there"),
                      record(2.0, 3, validated=False, origin="motet tune", machine="there")])
        assert [each.schedule["rows"] for each in database.best("here")] == [3]
    assert '"rows":3' in best_schedules(tmp_path / "a.db").decode()


def test_several_processes_write_at_once(tmp_path: Path):
    script = (
        "import sys; from motet.records.database import Database; from motet.records.record import Record\n"
        "with Database('a.db', create=True) as database:\n"
        "    for n in range(30):\n"
        "        database.add([Record('k', 't', 'm', {'class': 'x', 'rows': n, 'of': int(sys.argv[1]) * (n % 2)},"
        " seconds=1.0 + int(sys.argv[1]))])\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(n)], cwd=tmp_path, stderr=subprocess.PIPE)
               for n in range(3)]
    for writer in writers:
        assert writer.communicate(timeout=60)[1] == b""
    with Database(tmp_path / "a.db") as database:
        found = database.query()
    assert len(found) == 15 + 3 * 15
    assert {each.seconds for each in found if each.schedule["rows"] % 2 == 0} == {1.0}


def test_a_database_of_version_1_is_read(tmp_path: Path):
    path = tmp_path / "a.db"
    with Database(path, create=True) as database:
        database.add([record(1.0)])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    path.chmod(0o444)
    with Database(path) as database:
        assert database.query() == [record(1.0)]


@pytest.mark.parametrize("at", [0.3, 0.6, 0.99])
def test_a_damaged_file_is_one_line(tmp_path: Path, at: float):
    path = tmp_path / "a.db"
    with Database(path, create=True) as database:
        database.add([record(1.0, rows, error="x" * 200) for rows in range(50)])
    content = bytearray(path.read_bytes())
    for place in range(int(len(content) * at), min(len(content), int(len(content) * at) + 6000)):
        content[place] = 0xA5
    path.write_bytes(content)
    with contextlib.suppress(OptionError), Database(path) as database:  # or what was read is as it was written
        assert all(each.error == "x" * 200 for each in database.query())
        database.add([record(0.5, 100)])


def test_a_truncated_file_is_told(tmp_path: Path):
    path = tmp_path / "a.db"
    with Database(path, create=True) as database:
        database.add([record(1.0, rows, error="x" * 200) for rows in range(50)])
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(OptionError, match=r"a\.db: cannot be used as a database"), Database(path) as database:
        database.query()


def test_best_prefers_this_machine_and_version(tmp_path: Path):
    with Database(tmp_path / "a.db", create=True) as database:
        database.add([record(1.0, 1, machine="there"), record(3.0, 2), record(2.0, 3, motet="0.0.0")])
        assert [each.schedule["rows"] for each in database.best("here")] == [2]
        assert [each.schedule["rows"] for each in database.best("there")] == [1]


def test_near_kernels_come_first(tmp_path: Path):
    with Database(tmp_path / "a.db", create=True) as database:
        database.add([record(1.0, 1, kernel="far", extents=[512, 512]), record(1.0, 2, kernel="near", extents=[9, 8])])
        assert [each.kernel for each in database.near("f", "host:x86-64-v3", [8, 8], 2)] == ["near", "far"]


def test_exported_records_are_read_back(tmp_path: Path):
    with Database(tmp_path / "a.db", create=True) as database:
        database.add([record(1.5, counters={"cycles": 3.0, "energy": "not available"}), record(None, 2, error="no")])
        database.export(tmp_path / "a.jsonl")
        assert read_lines(tmp_path / "a.jsonl") == database.query()


def test_a_damaged_line_is_named(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"kernel": 3}\n')
    with pytest.raises(OptionError, match=r"a\.jsonl:1: no record"):
        read_lines(tmp_path / "a.jsonl")


def test_another_version_is_told(tmp_path: Path):
    path = tmp_path / "a.db"
    Database(path, create=True).__exit__()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {TABLES + 1}")
    connection.close()
    with pytest.raises(OptionError, match=f"version {TABLES + 1}; expected {TABLES}"):
        Database(path)


def test_other_files_are_refused(tmp_path: Path):
    (tmp_path / "text.db").write_text("not a database at all")
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(OptionError, match="not a database"):
        Database(tmp_path / "text.db", create=True)
    with pytest.raises(OptionError, match="another program"):
        Database(tmp_path / "other.db", create=True)
    with pytest.raises(OptionError, match="no such file"):
        Database(tmp_path / "absent.db")


def test_a_full_disk_is_one_line(tmp_path: Path):
    with Database(tmp_path / "a.db", create=True) as database:
        database._connection.execute("PRAGMA max_page_count = 8")
        with pytest.raises(OptionError, match="full"):
            database.add([record(1.0, rows, error="x" * 500) for rows in range(500)])


def test_best_schedules_of_other_machines_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with Database(tmp_path / "a.db", create=True) as database:
        database.add([record(1.0, machine="elsewhere"), record(0.5, 2, validated=False, machine="elsewhere")])
    text = best_schedules(tmp_path / "a.db").decode()
    assert '"rows":1' in text and "a.db" in text
    assert "measured on elsewhere" in caplog.text


def test_records_have_this_version():
    assert record(1.0).motet == VERSION


def test_a_device_that_counts_is_another_machine():
    info = DeviceInfo("cores", "riscv:qemu", family="riscv")
    assert fingerprint(info) != fingerprint(replace(info, uri="riscv:qemu?count=1"))
