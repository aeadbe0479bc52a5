"""Tries programs in this process: compiles many at once, calls each, and says how each went."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tests.fuzz import calls
from tests.fuzz.compiling import Options, compile_program, load_program
from tests.fuzz.graph import Array, Graph
from tests.fuzz.judge import fault
from tests.fuzz.languages import LANGUAGES
from tests.fuzz.reference import calculate
from tests.fuzz.shapes import types_of
from tests.fuzz.tracked import Invalid, Tracked, Undefined

from motet.errors import MotetError, WorkerCrash

Say = Callable[[str], None]
RIGHT_CALLS = 3
_NAMED = re.compile(r"\bp(\d+)(?:_|\b)")
_LONGEST = 6000  # characters of a refusal


@dataclass
class Outcome:
    """How a program went: `ok`, or as `Finding`, with words; its calls."""

    kind: str = "ok"
    text: str = ""
    calls: int = 0
    language: str = ""

    def failed(self, kind: str, text: str) -> None:
        """The first failure counts."""
        if self.kind == "ok":
            self.kind, self.text = kind, text


@dataclass(frozen=True)
class Member:
    """A program of a batch, its right calls with what they return, and where its outcome goes."""

    graph: Graph
    outcome: Outcome
    prepared: Sequence[tuple[calls.Feeds, list[Tracked]]]


def try_programs(graphs: Sequence[Graph], language: str, options: Options, say: Say) -> list[Outcome]:
    """The outcome of each program, all compiled together as far as none is refused. `say` is told what is done next,
    so that whoever waits knows where a crash was. A program of which no call is defined is not tried."""
    outcomes = [Outcome() for _ in graphs]
    members: list[Member] = []
    for graph, outcome in zip(graphs, outcomes, strict=True):
        with contextlib.suppress(Invalid):
            types_of(graph)
            members.append(Member(graph, outcome, [_prepared(graph, number) for number in range(RIGHT_CALLS)]))
    _compile_and_call(members, language, options, say)
    return outcomes


def _compile_and_call(members: Sequence[Member], language: str, options: Options, say: Say) -> None:
    while members:
        say(f"compile {[member.graph.seed for member in members]}")
        try:
            source = LANGUAGES[language].write([member.graph for member in members])
            artifact = compile_program(source, LANGUAGES[language].format, options)
            session = load_program(artifact, options)
        except Exception as error:
            kind, text = verdict(error)
            named = _NAMED.search(str(error))
            guilty = int(named[1]) if named and int(named[1]) < len(members) else None
            if len(members) == 1:
                members[0].outcome.failed(kind, text)
                return
            if kind == "refused" and guilty is not None:
                members[guilty].outcome.failed("refused", text)
                members = [*members[:guilty], *members[guilty + 1 :]]
                continue
            middle = len(members) // 2
            _compile_and_call(members[:middle], language, options, say)
            members = members[middle:]
            continue
        with session:
            if not LANGUAGES[language].together:
                for number, member in enumerate(members):
                    _call_together([member], session[f"p{number}"], language == "onnx", say)
                return
            before = [replace(member.outcome) for member in members]
            if _call_together(members, session, language == "onnx", say) or len(members) == 1:
                return
        # One of them refuses calls of all: it is found by halves.
        for member, old in zip(members, before, strict=True):
            vars(member.outcome).update(vars(old))
        middle = len(members) // 2
        _compile_and_call(members[:middle], language, options, say)
        members = members[middle:]


def verdict(error: Exception) -> tuple[str, str]:
    """The kind of an outcome that ends with `error`, and its words: one line of Motet's is a refusal, unless it says
    that the compiler died."""
    text = str(error)
    if isinstance(error, WorkerCrash):
        return "crash", text
    if isinstance(error, MotetError) and "\n" not in text.strip() and len(text) < _LONGEST:
        return "refused", text
    return "error", _trace(error)


def _trace(error: Exception) -> str:
    lines = traceback.format_exception_only(error)[-1].strip().splitlines()
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename.rsplit('/', 1)[-1]}:{last.lineno}: {lines[0]}"


# -- calls -----------------------------------------------------------------------------------------


def _call_together(members: Sequence[Member], function: Callable[..., Any], named: bool, say: Say) -> bool:
    """Calls a function of all the members' inputs, in order: right calls, then wrong ones. Whether right calls were
    taken. `named` says that the program's language has names of extents."""
    base: list[Array] = []
    for number in range(RIGHT_CALLS):
        prepared = [member.prepared[number] for member in members]
        arrays = [array for feeds, _ in prepared for array in feeds.values()]
        base = base or arrays
        given = calls.laid_out(arrays, members[0].graph.seed + number) if number == 1 else arrays
        say(f"call {number} {[member.graph.seed for member in members]}")
        results, refusal = _call(function, given)
        if refusal and len(members) > 1:
            return False
        for member, (_, wanted) in zip(members, prepared, strict=True):
            member.outcome.calls += 1
            mine, results = results[: len(wanted)], results[len(wanted) :]
            if refusal:
                member.outcome.failed("error" if "Error at" in refusal else "refused", refusal)
            elif text := fault(mine, wanted):
                member.outcome.failed("wrong", f"call {number}: {text}")
    for position, member in enumerate(members):
        before = sum(len(other.graph.inputs) for other in members[:position])
        _call_wrongly(member, function, base, before, named, say)
    return True


def _call(function: Callable[..., Any], arrays: Sequence[Array]) -> tuple[list[Array], str]:
    """The results, or why there are none."""
    try:
        results = function(*arrays)
    except MotetError as error:
        return [], f"call: {error}" if "\n" not in str(error) else _trace(error)
    except Exception as error:
        return [], _trace(error)
    if results is None:
        return [], ""
    return [np.asarray(r) for r in results] if isinstance(results, tuple) else [np.asarray(results)], ""


def _prepared(graph: Graph, number: int) -> tuple[calls.Feeds, list[Tracked]]:
    """The inputs of a right call and what it returns. Where extents do not fit, those that the graph was drawn with."""
    for symbols in (calls.extents_of_call(graph, number), graph.symbols):
        for again in range(0 if calls.is_large(graph, symbols) else 4):
            feeds = calls.feeds(graph, number + 100 * again, symbols)
            try:
                known = calculate(graph, feeds)
            except Invalid:
                continue
            return feeds, [known[name] for name in graph.results]
    raise Invalid("no call of it is right")


def _call_wrongly(
    member: Member, function: Callable[..., Any], base: Sequence[Array], before: int, named: bool, say: Say
) -> None:
    """Calls with one thing wrong each, in what belongs to `member`."""
    inputs = member.graph.inputs
    own = base[before : before + len(inputs)]
    for call in _wrong_calls(member.graph, own):
        if calls.SHARED_NAME in call.wrong and not named:
            continue
        whole = [*base[:before], *call.arrays, *base[before + len(inputs) :]]
        say(f"wrong call {member.graph.seed}: {call.wrong}")
        member.outcome.calls += 1
        results, refusal = _call(function, whole)
        if "Error at" in refusal:
            member.outcome.failed("error", f"{call.wrong}: {refusal}")
        elif not refusal and not call.wrong.startswith("undefined"):
            member.outcome.failed("wrong", f"accepted: {call.wrong}")
        del results


def _wrong_calls(graph: Graph, own: Sequence[Array]) -> Iterator[calls.Call]:
    yield from calls.wrong_calls(graph.inputs, own, graph.seed)
    yield from _misfits(graph)
    yield from _outside(graph, own)


def _misfits(graph: Graph) -> Iterator[calls.Call]:
    """Dynamic extents that the program does not allow."""
    if not graph.symbols:
        return
    for number in range(1, 6):
        symbols = calls.extents_of_call(graph, 50 + number)
        if calls.is_large(graph, symbols):
            continue
        feeds = calls.feeds(graph, number, symbols)
        try:
            calculate(graph, feeds)
        except Undefined as reason:
            yield calls.Call(tuple(feeds.values()), f"undefined extents {symbols}: {reason}")
        except Invalid as reason:
            yield calls.Call(tuple(feeds.values()), f"extents {symbols}: {reason}")


def _is_read(graph: Graph, name: str) -> bool:
    """Whether an element of a result may depend on the value `name`."""
    types, read = types_of(graph), {name}
    for node in graph.nodes:
        if read & set(node.inputs):
            read |= {output for output in node.outputs if output in types and 0 not in types[output][1]}
    return bool(read & set(graph.results))


def _outside(graph: Graph, own: Sequence[Array]) -> Iterator[calls.Call]:
    """Indices outside, of operators that some element of a result may depend on: the others are not run."""
    for number, entry in enumerate(graph.inputs):
        if not entry.index or not own[number].size or not _is_read(graph, entry.name):
            continue
        for outside in (10**6, -(10**6), int(entry.high or 0) + 1):
            changed = own[number].copy()
            changed.reshape(-1)[-1] = outside
            arrays = (*own[:number], changed, *own[number + 1 :])
            feeds = {i.name: array for i, array in zip(graph.inputs, arrays, strict=True)}
            try:
                calculate(graph, feeds)
            except Undefined:
                continue
            except Invalid as reason:
                yield calls.Call(arrays, f"an index {outside} in {entry.name}: {reason}")

