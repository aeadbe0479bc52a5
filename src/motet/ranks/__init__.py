"""Programs over several processes, called ranks, of one or several machines."""

from motet.ranks.faults import FaultyTransport
from motet.ranks.in_process import InProcessWorld
from motet.ranks.launcher import transport_of_launcher
from motet.ranks.session import RankedSession, load
from motet.ranks.transport import RankTransport
from motet.runtime.launching import launched

__all__ = [
    "FaultyTransport", "InProcessWorld", "RankTransport", "RankedSession", "launched", "load", "transport_of_launcher",
]
