"""The end of a search, and the process that measures, without a device."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from motet.artifact.reader import Artifact
from motet.compiler.kernels.schedule import KernelSchedule, decode_schedule, encode_schedule
from motet.errors import CallError, MotetError, OptionError, WrongResults
from motet.lab import measuring
from motet.lab.counters import energy
from motet.lab.language import schedule
from motet.lab.measuring import MeasuredFunction, MeasurePlan, Measurer, Samples
from motet.lab.search import Budget, Search, SearchState
from motet.lab.space import Point, ScheduleSpace, SpaceParameter
from motet.lab.strategies.random_search import RandomSearch
from motet.lab.subject import KernelSubject, open_program, subject_of
from motet.lab.workers import LocalWorkers
from motet.records.database import Database
from motet.records.record import Record, canonical
from motet.tools.lab.explain import best_lines
from motet.tools.lab.explore import state_lines

Problem = type[Exception] | None


@pytest.fixture(scope="module")
def subject() -> KernelSubject:
    return subject_of(open_program("matmul:9x11x7"))


def nest(subject: KernelSubject, size: int) -> dict[str, object]:
    from motet.compiler.kernels.schedule import encode_schedule

    made = schedule(subject.kernel)
    made.strip_mine(made.loops()[0], size)
    return encode_schedule(made.data())


def record(subject: KernelSubject, size: int, seconds: float, origin: str = "random") -> Record:
    return Record("k", "t", "m", nest(subject, size), seconds=seconds, validated=True, origin=origin)


@pytest.mark.parametrize("problems, left", [
    ([None], 2), ([WrongResults, None], 3), ([CallError, WrongResults], 4), ([OptionError], 2),
])
def test_the_best_is_one_whose_verification_succeeds(
    subject: KernelSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problems: list[Problem], left: int
):
    """Wrong ones are withdrawn from the database too. A figure beyond the limits (OptionError) says nothing of results.
    """
    waiting = iter(problems)

    def evaluate(*_: object, **__: object) -> None:
        if (problem := next(waiting)) is not None:
            raise problem("no")

    monkeypatch.setattr("motet.lab.search.evaluate", evaluate)
    made = [record(subject, 2, 1.0), record(subject, 3, 2.0), record(subject, 4, 3.0, "compiler")]
    with Database(tmp_path / "a.db", create=True) as database:
        database.add(made)
        space = None
        search = Search(subject, space, RandomSearch, Budget(4), LocalWorkers(1),  # type: ignore[arg-type]
                        added=lambda each: _add(database, each))
        search._seen = {canonical(each.schedule): each for each in made}
        state = SearchState(list(made), made[0])
        search._confirm(None, state)  # type: ignore[arg-type]
        best = database.best()
    wanted = canonical(nest(subject, left))
    assert state.best is not None and canonical(state.best.schedule) == wanted
    assert [canonical(each.schedule) for each in best] == [wanted]


def test_the_best_is_compared_with_the_compilers_choice_by_alternating_samples(
    subject: KernelSubject, monkeypatch: pytest.MonkeyPatch
):
    taken, order = {b"compiler": 3.0, b"best": 2.0}, list[bytes]()

    class Device:
        def measure(self, data: bytes, what: object, plan: MeasurePlan) -> Samples:
            order.append(data)
            return Samples([taken[data] * (1 + len(order) / 100)], 1, 1)

    best = decode_schedule(nest(subject, 2))
    monkeypatch.setattr("motet.lab.evaluation.what", lambda *_: None)
    monkeypatch.setattr("motet.lab.evaluation.compile_with", lambda _, given: SimpleNamespace(
        data=b"best" if given is best else b"compiler"))
    search = Search(subject, None, RandomSearch, Budget(4), LocalWorkers(1))  # type: ignore[arg-type]
    search._plan = MeasurePlan()
    gain = search._gain(Device(), best)  # type: ignore[arg-type]
    assert order == [b"compiler", b"best"] * (len(order) // 2)
    assert gain is not None and gain.low is not None and gain.high is not None
    assert 1.4 < gain.low <= gain.median <= gain.high < 1.5 and not gain.is_noise
    state = SearchState([], record(subject, 2, 2.0), record(subject, 4, 3.0, "compiler"), gain=gain)
    assert state_lines(subject, state, 0, None)[2].endswith(f"times as fast{gain.span}, proposed by random")


def _add(database: Database, record: Record) -> None:
    database.add([record])


class _Proposals:
    """Proposes points, and keeps what it is told."""

    def __init__(self, *points: Point) -> None:
        self.points, self.told = list(points), list[tuple[Point, float | None]]()

    def ask(self) -> Point | None:
        return self.points.pop(0) if self.points else None

    def tell(self, point: Point, seconds: float | None) -> None:
        self.told.append((point, seconds))


class _NoWorkers:
    count = 2

    def compile(self, subject: KernelSubject, schedules: Sequence[KernelSchedule]) -> list[Artifact | MotetError]:
        return [MotetError("not compiled")] * len(schedules)


def test_every_proposal_is_told_the_seconds_of_its_schedule(subject: KernelSubject, monkeypatch: pytest.MonkeyPatch):
    """Also one of a schedule that was measured before, and one of a schedule that waits to be measured."""
    points: list[Point] = [{"size": size, "same": same} for size, same in ((2, 0), (3, 0), (3, 1), (4, 0), (3, 1))]
    first, *others = points

    def begin(search: Search, *_: object) -> None:
        search._seen = {canonical(nest(subject, 2)): record(subject, 2, 2.0)}

    def measured(search: Search, measurer: Measurer, point: Point, *_: object) -> Record:
        size = int(point["size"] or 0)
        return record(subject, size, float(size)) if size == 3 else Record("k", "t", "m", nest(subject, size))

    monkeypatch.setattr(Search, "_begin", begin)
    monkeypatch.setattr(Search, "_measured", measured)
    monkeypatch.setattr(Search, "_confirm", lambda *_: None)
    strategy = _Proposals(*points)
    sizes = SpaceParameter("size", (2, 3, 4)), SpaceParameter("same", (0, 1))
    space = ScheduleSpace(sizes, lambda point: decode_schedule(nest(subject, int(point["size"] or 0))))
    Search(subject, space, strategy, Budget(4), _NoWorkers()).run()
    assert strategy.told == [(first, 2.0), *((each, 3.0 if each["size"] == 3 else None) for each in others)]


class _Run:
    """A run that has time for two samples of the five that are planned."""

    plan = MeasurePlan(repeat=5)

    def samples(self, number: int) -> list[float]:
        return [1.0, 1.0]


def test_energy_counts_the_samples_that_were_taken(monkeypatch: pytest.MonkeyPatch):
    readings = iter([{Path("p"): 1_000_000}, {Path("p"): 9_000_000}])
    monkeypatch.setattr(energy, "read_energy", lambda: next(readings))
    assert measuring._energy(4, _Run()) == pytest.approx(8.0 / (4 * 2))


def test_energy_that_cannot_be_read_says_why(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(energy, "read_energy", lambda: "not available: here")
    assert measuring._energy(4, _Run()) == "not available: here"


def _measure_by(monkeypatch: pytest.MonkeyPatch, expression: str):
    """Let the process answer each request with the value of an expression."""
    code = f"""import os
from motet.lab import measuring
measuring._measure = lambda *_: {expression}
measuring.serve({{handle}})"""
    monkeypatch.setattr(measuring, "_SERVE", code)


@pytest.mark.parametrize("measure, message", [("os._exit(11)", "crashed"), ("int('no')", "ValueError: invalid")])
def test_a_kernel_that_fails_is_one_error(monkeypatch: pytest.MonkeyPatch, measure: str, message: str):
    _measure_by(monkeypatch, measure)
    with Measurer() as measurer:
        for _ in range(2):
            with pytest.raises(CallError, match=message):
                measurer.measure(b"", MeasuredFunction("host", "main"), MeasurePlan())


def test_a_measurer_keeps_its_process_and_ends_it(monkeypatch: pytest.MonkeyPatch):
    _measure_by(monkeypatch, "measuring.Samples([float(os.getpid())], 1, 1, results=[measuring.np.zeros(1 << 16)])")
    with Measurer() as measurer:
        found = {measurer.measure(b"x" * (1 << 20), MeasuredFunction("host", "main"), MeasurePlan()).seconds[0]
                 for _ in range(3)}
    assert len(found) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(found.pop()), 0)


def test_explain_measures_the_best_record_in_turn_with_the_schedule(
    subject: KernelSubject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    listed, given = subject.listed, decode_schedule(nest(subject, 3))
    kept = Record(listed.key, listed.target, "m", nest(subject, 2), seconds=2.0, validated=True)
    with Database(tmp_path / "a.db", create=True) as database:
        database.add([kept])
    order: list[KernelSchedule] = []

    class Device:
        def measure(self, data: KernelSchedule, what: object, plan: MeasurePlan) -> Samples:
            order.append(data)
            return Samples([3.0 if data is given else 2.0], 1, 1)

    monkeypatch.setattr("motet.lab.measuring.measuring", lambda: nullcontext(Device()))
    monkeypatch.setattr("motet.lab.evaluation.what", lambda *_: None)
    monkeypatch.setattr("motet.lab.evaluation.compile_with", lambda _, taken: SimpleNamespace(data=taken))
    monkeypatch.setattr("motet.lab.evaluation.bytes", lambda data: data, raising=False)
    found = SimpleNamespace(record=kept)
    line = best_lines(subject, given, found, str(tmp_path / "a.db"))[0]  # type: ignore[arg-type]
    assert ", 1.50 times as fast now (95 %: 1.500 to 1.500), on m: " in line
    assert order[0::2] == [given] * 9 and all(canonical(encode_schedule(each)) == canonical(kept.schedule)
                                              for each in order[1::2])
