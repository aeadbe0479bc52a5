"""This machine's limits, as the lab measures them."""

from motet.lab.host_loops import HostLoops as Limits

__all__ = ["Limits"]
