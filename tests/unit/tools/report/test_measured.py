"""Traces are matched with the program that they are of, and with no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tools.report.programs import diamond, relay
from tests.unit.tools.report.test_model import read

from motet.artifact.schema import KernelInfo
from motet.errors import OptionError
from motet.runtime.device import Event
from motet.runtime.trace import Traced, chrome_trace
from motet.tools.report.measured import match, read_trace


def written(path: Path, content: object) -> str:
    file = path / "trace.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


def launch(name: str, begin: float, end: float, queue: int = 0, **others: int) -> Event:
    return Event(name, "launch", queue, begin, end, **others)


def relay_trace() -> str:
    first = launch("p_kernel", 5.0, 5.1)
    write = Event("write", "write", 1, 5.2, 5.25, 100)
    second = launch("q_kernel", 5.3, 5.8, instructions=777)
    back = Event("read", "read", 0, 5.9, 6.0, 100)
    return chrome_trace(
        [Traced("host", first, memory=64), Traced("null", write, (first,), 100), Traced("null", second, (write,), 200),
         Traced("null", back)],
        "main", lambda device, symbol: KernelInfo(symbol, "loops", {"p_kernel": 300}.get(symbol, 1000), 10),
    )


def test_spans_are_the_operations_of_their_symbols(tmp_path: Path) -> None:
    trace, program = read_trace(written(tmp_path, relay_trace())), read(relay())
    names = {trace.spans[span].name: program.operations[o] for span, o in match(trace, program).items()}
    assert names["p_kernel"].name == "p_kernel" and names["q_kernel"].name == "q_kernel"
    assert (names["write"].kind, names["write"].device) == ("transfer", 1)
    assert (names["read"].kind, names["read"].device) == ("transfer", 0)


def test_times_waits_memory_and_instructions_survive_the_file(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, relay_trace()))
    spans = {span.name: span for span in trace.spans}
    assert spans["q_kernel"].begin == pytest.approx(0.3) and spans["q_kernel"].end == pytest.approx(0.8)
    assert [trace.spans[number].name for number in spans["write"].after] == ["p_kernel"]
    assert [trace.spans[number].name for number in spans["q_kernel"].after] == ["write"]
    assert spans["q_kernel"].instructions == 777 and spans["write"].bytes == 100
    assert [size for _, size in trace.memory["null"]] == [100, 200]


def test_repeated_kernels_are_matched_in_order(tmp_path: Path) -> None:
    program = read(diamond())
    symbols = [symbol for operation in program.operations for symbol in operation.symbols]
    events = [Traced("host", launch(symbol, n, n + 0.5)) for n, symbol in enumerate(symbols)]
    trace = read_trace(written(tmp_path, chrome_trace(events, "main")))
    assert [match(trace, program)[n] for n in range(5)] == [1, 2, 3, 3, 4]


@pytest.mark.parametrize(("events", "said"), [
    ([launch("q_kernel_9", 0, 1)], "it launches q_kernel_9, which main has not"),
    ([launch("p_kernel", 0, 1), launch("p_kernel", 1, 2)], "it launches p_kernel 2 times on host"),
])
def test_another_programs_trace_is_refused(tmp_path: Path, events: list[Event], said: str) -> None:
    text = chrome_trace([Traced("host", event) for event in events], "main")
    trace = read_trace(written(tmp_path, text))
    with pytest.raises(OptionError, match=f"a trace of another program: {said}"):
        match(trace, read(relay()))


def test_kernels_of_the_same_name_that_do_other_work_are_refused(tmp_path: Path) -> None:
    text = chrome_trace(
        [Traced("host", launch("p_kernel", 0, 1))], "main", lambda device, symbol: KernelInfo(symbol, "loops", 299)
    )
    with pytest.raises(OptionError, match="p_kernel does 299 operations in it, 300 here"):
        match(read_trace(written(tmp_path, text)), read(relay()))


def good() -> dict[str, Any]:
    return json.loads(relay_trace())


def spoiled(**changes: Any) -> dict[str, Any]:
    content = good()
    event = next(event for event in content["traceEvents"] if event["ph"] == "X")
    event.update(changes)
    return content


@pytest.mark.parametrize("content", [
    "", "{", "[]", "null", "\x00\xff", "[" * 100_000, {}, {"traceEvents": []}, {"traceEvents": {}, "otherData": {}},
    {"traceEvents": [], "otherData": {"program": 3}}, {"traceEvents": [7], "otherData": {"program": "main"}},
    {"traceEvents": [], "otherData": {"program": "main", "devices": [1]}}, spoiled(ts="soon"), spoiled(ts=None),
    spoiled(dur=-1), spoiled(ts=1e300), spoiled(pid=[]), spoiled(tid=1.5), spoiled(args=4),
    spoiled(args={"bytes": "many"}), spoiled(ts=True),
])
def test_what_is_no_trace_is_one_error(tmp_path: Path, content: object) -> None:
    with pytest.raises(OptionError) as caught:
        read_trace(written(tmp_path, content))
    text = str(caught.value)
    assert text.startswith("--trace ") and "expected what motet run --trace" in text
    assert "\n" not in text and len(text) < 400


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none\.json: cannot be read: no such file"):
        read_trace(str(tmp_path / "none.json"))
