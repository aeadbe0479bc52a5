"""Joins this process to the others that an MPI launcher started."""

from __future__ import annotations

import atexit
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from motet.errors import DeviceError, MotetError
from motet.runtime.launching import INSTALL, launched

if TYPE_CHECKING:
    from motet.ranks.mpi import MpiTransport

_FORWARDED = 0.5  # seconds for the launcher to pass on what was written, which it drops when a job is aborted


def transport_of_launcher() -> MpiTransport:
    """The transport of this process among those of its launcher. If this process ends with an error that is its own, or
    another rank is lost, all ranks are ended. Raises DeviceError if mpi4py is missing, and if its MPI is not the one of
    the launcher."""
    try:
        from motet.ranks.mpi import MpiTransport

        transport = MpiTransport()
    except (ImportError, RuntimeError) as error:  # mpi4py without an MPI library raises RuntimeError
        raise DeviceError(f"this is one of {launched()} processes of an MPI launcher, but mpi4py cannot be used "
                          f"({error}); {INSTALL}") from None
    if transport.size != launched():
        raise DeviceError(f"the launcher has started {launched()} processes, but mpi4py's MPI sees {transport.size}: "
                          f"they are of different MPIs; use the mpiexec next to python, or {INSTALL} there")
    _end_together(transport)
    return transport


def _end_together(transport: MpiTransport) -> None:
    """MPI lets no process end before all do: without this, one that stops or fails would keep the others."""
    before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        transport.lost |= not isinstance(error, MotetError)  # others have Motet's errors, too

    def end() -> None:
        if transport.lost:
            sys.stdout.flush()
            sys.stderr.flush()
            time.sleep(_FORWARDED)
            transport.abort("a rank is lost")

    sys.excepthook = show
    atexit.register(end)
