"""motet run under an MPI launcher: every rank loads the program, and all call its function together. Rank 0 reads the
command's inputs, compiles, prints, writes and compares; the others say nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from motet.decoding import decode_json
from motet.errors import MotetError, RankFailure
from motet.runtime.launching import launched

if TYPE_CHECKING:
    from motet.artifact.reader import Artifact
    from motet.ranks import RankedSession, RankTransport
    from motet.tools.opening import Opened

_PATIENCE = 3600.0  # seconds that ranks wait for rank 0 to compile and to compare


class Announcement(msgspec.Struct, frozen=True):
    """What rank 0 tells the others before loading: the program failed to open, with an `error`; it is an artifact in a
    file that each rank has, `path`; or one that rank 0 has compiled, whose content follows."""

    function: str = ""
    path: str = ""
    bindings: dict[str, str] = {}
    traced: bool = False
    error: str = ""


@dataclass
class RankRun:
    """The session of a command over several ranks."""

    transport: RankTransport
    announced: bool = False

    @property
    def leads(self) -> bool:
        return self.transport.rank == 0

    def load(self, opened: Opened, announced: Announcement, threads: int | None) -> RankedSession:
        """Rank 0's session; the others make theirs in `follow`."""
        self._announce(announced)
        if not announced.path:
            self.transport.broadcast(bytes(opened.artifact.data), 0, _PATIENCE)
        return _load(announced.path or opened.artifact, announced.bindings, threads, self.transport)

    def follow(self, threads: int | None) -> None:
        """Take part in the run of rank 0. Its errors are reported there."""
        items = self.transport.gather(b"", _PATIENCE)
        announced = decode_json(items[0], Announcement)
        if announced.error:
            return
        source: str | Artifact = announced.path
        if not source:
            from motet.artifact.reader import Artifact

            source = Artifact.from_bytes(self.transport.broadcast(None, 0, _PATIENCE), name="the program")
        try:
            with _load(source, announced.bindings, threads, self.transport) as session:
                function = session[announced.function]
                _ = function.trace() if announced.traced else function()
        except MotetError as error:
            if _is_loss(error):  # perhaps of rank 0
                raise

    def give_up(self, error: str) -> None:
        """Tell the others, unless they know what to run, that there is nothing."""
        if self.leads and not self.announced:
            self._announce(Announcement(error=error))

    def _announce(self, announced: Announcement) -> None:
        self.announced = True
        self.transport.gather(msgspec.json.encode(announced), _PATIENCE)


@contextlib.contextmanager
def ranks_of_launcher() -> Generator[RankRun | None]:
    """The run of this process among those of a launcher; None without one."""
    if launched() == 1:
        yield None
        return
    from motet.ranks.launcher import transport_of_launcher

    run = RankRun(transport_of_launcher())
    try:
        yield run
    except MotetError as error:
        typer.echo(f"error: {error}", err=True)  # now: launchers end all ranks as soon as one ends with an error
        if not _is_loss(error):
            run.give_up(str(error))
            run.transport.gather(b"", _PATIENCE)
        raise typer.Exit(1) from None
    else:
        run.give_up("nothing is run")  # such as for --dry-run
        run.transport.gather(b"", _PATIENCE)


def _is_loss(error: MotetError) -> bool:
    """Whether a rank does not answer: nothing can be told to all of them any more."""
    return isinstance(error, RankFailure) and error.kind == RankFailure.MISSING


def _load(
    source: str | Artifact, bindings: Mapping[str, str], threads: int | None, transport: RankTransport
) -> RankedSession:
    from motet import ranks

    session = ranks.load(source, devices=dict(bindings) or None, threads=threads, transport=transport, results="root")
    if transport.rank == 0:
        for note in session.notes:
            typer.echo(f"note: {note}", err=True)
    return session


def random_inputs(signature: Any) -> list[Any]:
    """Random arrays for the inputs of a function, one seed each. Raises CallError for dynamic extents."""
    from motet.errors import CallError
    from motet.specs import random_tensor
    from motet.tools.show import show_signature, show_tensor

    arrays: list[Any] = []
    for number, spec in enumerate(signature.inputs):
        extents: Sequence[Any] = spec.shape
        if not all(isinstance(extent, int) for extent in extents):
            unknown = ", ".join(dict.fromkeys(str(extent) for extent in extents if not isinstance(extent, int)))
            raise CallError(
                f"input {number} ({spec.name}) has unknown extents, and no --input is given; {len(signature.inputs)} "
                f"expected by {show_signature(signature)}, such as --input {show_tensor(spec)}=random:{number} with "
                f"numbers for {unknown}"
            )
        arrays.append(random_tensor(extents, spec.dtype, number))
    return arrays
