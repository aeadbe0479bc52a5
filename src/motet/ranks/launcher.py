"""Joins this process to the others that an MPI launcher started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from motet.errors import DeviceError
from motet.runtime.launching import INSTALL, launched

if TYPE_CHECKING:
    from motet.ranks.mpi import MpiTransport


def transport_of_launcher() -> MpiTransport:
    """The transport of this process among those of its launcher. Raises DeviceError if mpi4py is missing, and if its
    MPI is not the one of the launcher."""
    try:
        from motet.ranks.mpi import MpiTransport

        transport = MpiTransport()
    except (ImportError, RuntimeError) as error:  # mpi4py without an MPI library raises RuntimeError
        raise DeviceError(f"this is one of {launched()} processes of an MPI launcher, but mpi4py cannot be used "
                          f"({error}); {INSTALL}") from None
    if transport.size != launched():
        raise DeviceError(f"the launcher has started {launched()} processes, but mpi4py's MPI sees {transport.size}: "
                          f"they are of different MPIs; use the mpiexec next to python, or {INSTALL} there")
    return transport
