"""A model of the links between ranks: machines with several devices, below one switch.

    device ─ its port ─┐                              ┌─ its port ─ device
    device ─ its port ─┴─ machine ─ uplink ═ switch ═ uplink ─ machine ─┴─ its port ─ device

Each link has two directions, which do not disturb each other. A link carries one message after the other, in the order
in which they are ready, each for its bytes over the link's bandwidth; a message enters the next link of its way as soon
as that is free, while it is still on the one before. So the last of several equal messages that share a link arrives
when it would with fair shares.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_Link = tuple[str, int]


@dataclass(frozen=True)
class Network:
    """`devices` ranks in machines of `per_machine`. Bandwidths in bytes per second, latencies in seconds: `near` within
    a machine, at each device's port, and `far` between machines, at each machine's uplink."""

    devices: int
    per_machine: int = 8
    near: float = 4e11
    far: float = 5e10
    near_latency: float = 2e-6
    far_latency: float = 5e-6

    def machine(self, rank: int) -> int:
        """The machine of a rank."""
        return rank // self.per_machine

    def way(self, source: int, target: int) -> tuple[_Link, ...]:
        """The links from one rank to another, each in the direction that it is used."""
        a, b = self.machine(source), self.machine(target)
        between = () if a == b else (("up", a), ("down", b))
        return ("out", source), *between, ("in", target)

    def bandwidth(self, link: _Link) -> float:
        """Bytes per second of a link."""
        return self.near if link[0] in ("out", "in") else self.far

    def latency(self, source: int, target: int) -> float:
        """Seconds of a message without bytes."""
        return self.near_latency if self.machine(source) == self.machine(target) else self.far_latency

    def alone(self, source: int, target: int, size: int) -> float:
        """Seconds of a message that shares its links with no other."""
        return self.latency(source, target) + size / min(map(self.bandwidth, self.way(source, target)))


@dataclass
class Traffic:
    """The messages of a run on a network: when each link is free, and the seconds for which it was taken."""

    network: Network
    free: dict[_Link, float] = field(default_factory=dict[_Link, float])
    taken: dict[_Link, float] = field(default_factory=dict[_Link, float])

    def send(self, source: int, target: int, size: int, ready: float) -> tuple[float, float]:
        """When a message has left its rank, and when it arrives; messages are given in the order of `ready`."""
        network = self.network
        begin = end = ready
        for link in network.way(source, target):
            took = size / network.bandwidth(link)
            begin = max(begin, self.free.get(link, 0.0))
            self.free[link] = begin + took
            self.taken[link] = self.taken.get(link, 0.0) + took
            end = max(end, begin + took)
        return end, end + network.latency(source, target)
