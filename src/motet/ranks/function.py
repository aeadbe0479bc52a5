"""Functions that several ranks call together."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from motet.artifact.places import on_rank
from motet.artifact.schema import Signature
from motet.decoding import decode_json
from motet.errors import CallError, MotetError, RankFailure
from motet.ranks.courier import CallPeers, Courier
from motet.ranks.division import ROOT
from motet.ranks.instance import RankInstance
from motet.ranks.members import RankMember, clock_offsets
from motet.runtime.call import Call
from motet.runtime.call_queue import InFlight
from motet.runtime.drivers.host.memory import Pool
from motet.runtime.function import Function
from motet.runtime.trace import Traced

Run = Callable[[RankInstance, Sequence[Any]], Any]


class Opening(msgspec.Struct, frozen=True):
    """What a rank says at the beginning of a call: its function, whether it is traced, on rank 0 the values of the
    symbols, and an error of the call's arguments; and a message that was lost in an earlier call."""

    function: str
    how: str = "run"
    symbols: list[int] = []
    error: str = ""
    lost: str = ""


@dataclass(frozen=True)
class OtherRanks:
    """What a function knows of the other ranks: its messages, the messages of its calls, who they are, and the seconds
    after which one that does not answer is lost."""

    courier: Courier
    peers: CallPeers
    members: Sequence[RankMember]
    timeout: float


class RankedFunction(Function):
    """See `motet.runtime.function.Function`. All ranks call it together; `submit` runs calls one after the other."""

    def __init__(
        self, signature: Signature, make: Callable[[Mapping[str, int]], RankInstance], pool: Pool, in_flight: InFlight,
        others: OtherRanks,
    ) -> None:
        super().__init__(signature, make, pool, in_flight)
        self._ranked = make
        self._courier = others.courier
        self._peers = others.peers
        self._members = others.members
        self._timeout = others.timeout
        self._other: dict[tuple[int, ...], RankInstance] = {}  # on ranks that have no arguments

    def __call__(self, *arguments: Any, out: Any = None, stream: Any = None) -> Any:
        """Call the function on all ranks. The arguments are those of rank 0; other ranks may pass None for each, or
        nothing. Returns the results on the ranks that take them (`load`), else None. Raises on all ranks if the call
        fails on one: CallError for unsuitable arguments, RankFailure for failures while it runs."""
        if stream is not None:
            raise CallError(f"{self.name}: stream: it runs on several ranks; expected a call without a stream")
        return self._together(arguments, out, "run", lambda instance, arrays: instance.run(arrays))[0]

    def bind(self, *arguments: Any, out: Any = None, stream: Any = None) -> Callable[[], Any]:
        """A call with these arguments; every rank makes it."""
        return lambda: self(*arguments, out=out, stream=stream)

    def profile(self, *arguments: Any, out: Any = None) -> list[tuple[str, float]]:
        """Run the plan's steps of this rank one after the other; returns the seconds of each."""
        return self._together(arguments, out, "profile", lambda instance, arrays: instance.run_timed(arrays))[1]

    def trace(self, *arguments: Any, out: Any = None) -> tuple[Any, list[Traced]]:
        """Run the function; returns its results, and the events of all ranks by the clock of this one: those of its
        devices, and its messages on `rank:N/network`."""
        self._courier.profile(True)
        try:
            result, events = self._together(
                arguments, out, "trace", lambda instance, arrays: instance.run_traced(arrays)
            )
        finally:
            messages = self._courier.profile(False)
        own = [replace(each, device=on_rank(self._rank, each.device)) for each in events]
        own += [Traced(on_rank(self._rank, "network"), event) for event in messages]
        offsets = clock_offsets(self._courier.transport, self._members, self._timeout)
        items = self._courier.transport.gather(pickle.dumps(own), self._timeout)  # keeps which events are the same
        found = [_shifted(pickle.loads(item), offset) for item, offset in zip(items, offsets, strict=True)]
        return result, sorted((each for part in found for each in part), key=lambda each: each.event.begin)

    # -- a call ----------------------------------------------------------------------------------

    @property
    def _rank(self) -> int:
        return self._courier.transport.rank

    def _together(self, arguments: Sequence[Any], out: Any, how: str, run: Run) -> tuple[Any, Any]:
        """The result of a call, and what `run` returned."""
        call: Call | None = None
        opening = Opening(self.name, how)
        if self._rank == ROOT:
            try:
                call = self._prepare(arguments, out)
                opening = Opening(self.name, how, self._key(call.inputs))
            except MotetError as error:
                opening = Opening(self.name, how, error=str(error))
        lost = self._courier.lost
        symbols = self._agree(opening if lost is None else msgspec.structs.replace(opening, lost=str(lost)))
        failure: MotetError | None = None
        recorded = None
        try:
            self._peers.begin()
            call = self._call_elsewhere(symbols, out) if call is None else call
            assert isinstance(call.instance, RankInstance)
            recorded = run(call.instance, call.arrays())
        except MotetError as error:
            failure = error
            self._peers.fail()
        except BaseException:
            self._courier.transport.abort(f"{self.name}: interrupted")
            raise
        self._courier.settle()
        self._end(failure)
        return call.value() if call is not None else None, recorded

    def _key(self, inputs: Sequence[Any]) -> list[int]:
        return [self._extent(inputs[symbol.input], symbol.input, symbol.axis) for symbol in self._whole.symbols]

    def _agree(self, own: Opening) -> list[int]:
        """The values of the symbols. Raises CallError on all ranks if they call different functions, or rank 0 has
        unsuitable arguments, and RankFailure if a message was lost."""
        items = self._courier.transport.gather(msgspec.json.encode(own), self._timeout)
        openings = [decode_json(item, Opening) for item in items]
        for rank, each in enumerate(openings):
            if each.lost:
                raise RankFailure(rank, f"the session cannot be used any more: {each.lost}", "lost")
            if (each.function, each.how) != (openings[0].function, openings[0].how):
                raise CallError(f"ranks disagree: rank 0 calls {openings[0].how} of {openings[0].function}, rank "
                                f"{rank} {each.how} of {each.function}; expected the same calls in the same order")
        if openings[ROOT].error:
            raise CallError(openings[ROOT].error)
        return openings[ROOT].symbols

    def _call_elsewhere(self, values: Sequence[int], out: Any) -> Call:
        """The call on a rank without arguments."""
        if out is not None:
            raise CallError(f"{self.name}: out: it is given on rank {self._rank}; expected it on rank {ROOT} only")
        key = tuple(values)
        if key not in self._other:
            names = [symbol.name for symbol in self._whole.symbols]
            self._other[key] = self._ranked(dict(zip(names, key, strict=True)))
        instance = self._other[key]
        results: list[Any] = [self._allocate(shape) for shape in instance.results]
        return Call(instance, False, [], results, results)

    def _end(self, failure: MotetError | None) -> None:
        """Raise the failure of the call, the same on all ranks: that of the lowest rank which did not fail because of
        another one."""
        kind = "" if failure is None else type(failure).__name__
        secondary = isinstance(failure, RankFailure) and failure.kind == "poison"
        said = "" if failure is None else str(failure)
        items = self._courier.transport.gather(msgspec.json.encode([kind, said, secondary]), self._timeout)
        failures = [(rank, *msgspec.json.decode(item)) for rank, item in enumerate(items)]
        failed = sorted((each[3], each[0], each) for each in failures if each[1])
        if failed:
            rank, kind, said, _ = failed[0][2]
            raise RankFailure(rank, said, kind) from failure

    def _prepare(self, arguments: Sequence[Any], out: Any) -> Call:
        call = super()._prepare(arguments, out)
        if not call.instance.results:  # other ranks take them
            call.returned = []
        return call


def _shifted(events: Sequence[Traced], offset: float) -> list[Traced]:
    """Events by a clock that is `offset` seconds behind theirs."""
    if not offset:
        return list(events)
    moved: dict[int, Any] = {}

    def shift(event: Any) -> Any:
        if id(event) not in moved:
            pieces = tuple(replace(p, begin=p.begin - offset, end=p.end - offset) for p in event.pieces)
            moved[id(event)] = replace(event, begin=event.begin - offset, end=event.end - offset, pieces=pieces)
        return moved[id(event)]

    return [replace(each, event=shift(each.event), after=tuple(map(shift, each.after))) for each in events]
