"""Sessions over several ranks: each rank loads the same artifact, and all of them call its functions together.

    session = ranks.load("model.motet", devices={"a": "rank:0/host", "b": "rank:1/cuda:0"})
    y = session(x)                      on every rank; the arguments are those of rank 0

Loading gathers the devices of all ranks once; every rank then binds, divides and proves alike. A call begins with the
agreement of all ranks on the function and its extents, and ends with that on its outcome: if it fails on one rank, it
fails on all, with the same error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from msgspec.structs import replace

from motet.artifact.device_flags import bindings_of
from motet.artifact.places import split_place
from motet.artifact.plans import whole_plan
from motet.artifact.reader import Artifact
from motet.artifact.schema import Plan, Signature, Variant
from motet.artifact.states import has_state
from motet.artifact.visible import hidden_functions
from motet.errors import ArtifactError, CallError, MotetError, OptionError
from motet.ranks.courier import CallPeers, Courier
from motet.ranks.division import ROOT, RankPart, divide
from motet.ranks.function import OtherRanks, RankedFunction
from motet.ranks.instance import RankCode, RankInstance
from motet.ranks.launcher import transport_of_launcher
from motet.ranks.local_devices import open_local
from motet.ranks.members import RankMember, devices_of, gather_members, obstacle_among, with_ranks
from motet.ranks.proof import RankProof, prove
from motet.ranks.transport import RankTransport
from motet.runtime.call_queue import InFlight
from motet.runtime.device import DeviceInfo, is_family, probe
from motet.runtime.drivers.host.memory import Pool
from motet.runtime.drivers.host.threads import thread_count
from motet.runtime.selection import HOST, DeviceChoice, bind, needed_families, opener, regions_of
from motet.runtime.session import DEFAULT_FUNCTION
from motet.runtime.submission import submission_order

TIMEOUT = 300.0  # seconds


# Its parameters are what a caller may choose, each with a default.
def load(
    source: str | Path | Artifact,
    *,
    devices: str | Mapping[str, str] | None = None,
    threads: int | None = None,
    transport: RankTransport | None = None,
    results: str = "all",
    timeout: float = TIMEOUT,
) -> RankedSession:
    """Load an artifact on all ranks, which call this together.

    `source` is a file, which may be missing on ranks other than 0: they get it by broadcast. `devices` binds the
    program's devices as `motet.load` does, with places: `rank:1/host`, or `host1/cuda:0` for the first rank on machine
    `host1`; a device without a place is one of rank 0. Devices that are not named are spread over the devices of all
    ranks. `threads` is the number of threads of the host's devices on each rank. `transport` is by default MPI's,
    between the processes of the launcher. Results are returned on `"all"` ranks, or on the `"root"`, rank 0, with None
    elsewhere. A rank that does not answer for `timeout` seconds is lost. Raises ArtifactError if ranks have different
    artifacts or versions of Motet, DeviceError, RankFailure, OptionError.
    """
    if results not in ("all", "root"):
        raise OptionError(f"results: {results!r} given; expected all or root")
    if threads is not None and threads < 1:
        raise OptionError(f"threads: {threads} given, at least 1 expected")
    bindings = bindings_of(devices)
    own = transport is None
    transport = transport_of_launcher() if transport is None else transport
    try:
        artifact = source if isinstance(source, Artifact) else open_everywhere(transport, source, timeout)
        return RankedSession(artifact, transport, bindings, threads or thread_count(), results, timeout)
    except BaseException:
        if own:
            transport.close()
        raise


def open_everywhere(transport: RankTransport, path: str | Path, timeout: float) -> Artifact:
    """The artifact in a file of each rank; a rank without that file gets that of rank 0. Raises ArtifactError."""
    found: Artifact | None = None
    missing = not Path(path).exists()
    reason = ""
    try:
        found = None if missing and transport.rank != ROOT else Artifact.open(path)
    except MotetError as error:
        reason = str(error)
    agree(transport, reason, timeout)
    lacking = transport.gather(b"1" if found is None else b"", timeout)
    if not any(lacking):
        assert found is not None
        return found
    content = bytes(found.data) if found is not None and transport.rank == ROOT else None
    sent = transport.broadcast(content, ROOT, timeout)
    return found if found is not None else Artifact.from_bytes(sent, name=str(path))


def agree(transport: RankTransport, reason: str, timeout: float) -> None:
    """Raise ArtifactError on all ranks if there is a `reason` on one; every rank calls this."""
    for rank, text in enumerate(transport.gather(reason.encode(), timeout)):
        if text:
            raise ArtifactError(f"rank {rank}: {text.decode()}" if transport.size > 1 else text.decode())


class RankedSession:
    """Callable functions over several ranks: `session(x)`, `session["main"](x)`. Every rank makes the same calls in
    the same order. `close`, or leaving the `with` block, ends it, on all ranks together."""

    def __init__(
        self, artifact: Artifact, transport: RankTransport, bindings: Mapping[str, str], threads: int, results: str,
        timeout: float,
    ) -> None:
        self.artifact = artifact
        self.transport = transport
        self._timeout = timeout
        manifest = artifact.manifest
        _check_supported(artifact)
        here = _devices_here(artifact, bindings)
        self.members: Sequence[RankMember] = gather_members(transport, artifact, here, timeout)
        self.devices: Sequence[DeviceChoice] = self._bind(bindings)
        self.notes = [f"@{choice.device.name}: {choice.note}" for choice in self.devices if choice.note]
        own = [choice for choice in self.devices if choice.info.rank == transport.rank]
        loaded, reason = open_local(artifact, own, threads)
        self._code = RankCode(artifact, loaded)
        try:
            agree(transport, reason, timeout)
            self._numbers, self._hosts = _numbers(self.devices, transport.size)
            self._plans = {name: manifest.plans.get(name) or whole_plan(signature)
                           for name, signature in artifact.functions.items()}
            takers = range(transport.size) if results == "all" else [ROOT]
            self._parts = {
                name: divide(
                    plan, [choice.info.rank for choice in self.devices], self._numbers, self._hosts, takers, name
                )
                for name, plan in self._plans.items()
            }
            self.proofs: Mapping[str, RankProof] = {name: self._prove(name) for name in self._parts}
        except BaseException:
            self._code_close()
            raise
        self._courier = Courier(transport, timeout)
        self._pool, self._in_flight = Pool(), InFlight(1)
        self.functions: Mapping[str, RankedFunction] = {
            name: self._function(signature) for name, signature in artifact.functions.items()
        }

    # -- calling ---------------------------------------------------------------------------------

    def __call__(self, *arguments: object) -> object:
        """Call the only function, or `main`; see `RankedFunction.__call__`."""
        return self._default(*arguments)

    def __getitem__(self, name: str) -> RankedFunction:
        if name not in self.functions:
            known = ", ".join(self.functions) or "none"
            raise CallError(f"{self.artifact.name}: no function {name!r}; there are: {known}")
        return self.functions[name]

    @property
    def rank(self) -> int:
        return self.transport.rank

    @property
    def size(self) -> int:
        return self.transport.size

    @property
    def variants(self) -> Sequence[Variant]:
        """The variants in use, each once."""
        return list({choice.variant.target: choice.variant for choice in self.devices}.values())

    @property
    def _default(self) -> RankedFunction:
        if len(self.functions) == 1:
            return next(iter(self.functions.values()))
        return self[DEFAULT_FUNCTION]

    # -- lifetime --------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for submitted calls, and free the rank's devices."""
        self._in_flight.close()
        for function in self.functions.values():
            function.close()
        self._courier.close()
        self._code_close()

    def __enter__(self) -> RankedSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- internals -------------------------------------------------------------------------------

    def _bind(self, bindings: Mapping[str, str]) -> list[DeviceChoice]:
        manifest = self.artifact.manifest
        return bind(
            manifest.devices, manifest.variants, with_ranks(bindings, self.members), devices_of(self.members),
            self.artifact.name, lambda info, variant: obstacle_among(self.members, info, variant),
            regions_of(manifest),
        )

    def _prove(self, name: str) -> RankProof:
        """Prove the parts of a function in the order in which each rank submits its steps."""
        hosts: list[set[int]] = [{host} for host in self._hosts]
        for choice, number in zip(self.devices, self._numbers, strict=True):
            if choice.info.family == HOST:
                hosts[choice.info.rank].add(number)
        plans = [_in_order(part, hosts[part.rank]) for part in self._parts[name]]
        return prove(plans, lambda rank, device: device in hosts[rank], f"{self.artifact.name}: {name}")

    def _function(self, signature: Signature) -> RankedFunction:
        part = self._parts[signature.name][self.rank]
        peers = CallPeers(self._courier, part.sends, part.receives)

        def make(symbols: Mapping[str, int]) -> RankInstance:
            return RankInstance(signature, self._plans[signature.name], part, peers, self._code, symbols)

        others = OtherRanks(self._courier, peers, self.members, self._timeout)
        return RankedFunction(signature, make, self._pool, self._in_flight, others)

    def _code_close(self) -> None:
        for loaded in self._code.devices:
            loaded.close()


def _check_supported(artifact: Artifact) -> None:
    """Raises CallError for functions that need memory of one process."""
    hidden = hidden_functions(artifact.functions.values())
    for name, signature in artifact.functions.items():
        what = "state" if has_state(signature) else "extents that follow from values" if any(
            spec.value is not None for spec in signature.inputs) else ""
        if what or name in hidden:
            raise CallError(f"{artifact.name}: {name} has {what or 'state'}; expected functions without state, whose "
                            "extents follow from arguments' shapes: others run on one rank, by motet.load")


def _devices_here(artifact: Artifact, bindings: Mapping[str, str]) -> list[DeviceInfo]:
    """The devices of this machine that the artifact, or a binding, may use, and the host. Every rank says what it has;
    which rank a binding means is not known yet."""
    manifest = artifact.manifest
    local = {name: split_place(uri)[1] for name, uri in bindings.items()}
    families = needed_families(manifest.devices, manifest.variants, {})
    for uri in local.values():
        family = opener(uri.partition(":")[0].partition("/")[0].partition("?")[0])
        families += [family] if is_family(family) and family not in families else []
    return [info for family in dict.fromkeys([HOST, *families]) for info in probe(family)]


def _numbers(choices: Sequence[DeviceChoice], size: int) -> tuple[list[int], list[int]]:
    """The number of each device on its rank, by its URI, and that of each rank's host: the first of its devices that is
    one, else another after them (`open_local`)."""
    known: list[dict[str, int]] = [{} for _ in range(size)]
    numbers = [known[c.info.rank].setdefault(c.info.uri, len(known[c.info.rank])) for c in choices]
    hosts = [len(each) for each in known]
    for choice, number in zip(choices, numbers, strict=True):
        if choice.info.family == HOST:
            hosts[choice.info.rank] = min(hosts[choice.info.rank], number)
    return numbers, hosts


def _in_order(part: RankPart, hosts: set[int]) -> Plan:
    """A rank's plan in the order of submission."""
    steps = part.plan.steps
    order = submission_order(steps, lambda device: device in hosts, lambda device: device)
    return replace(part.plan, steps=[steps[number] for number in order])

