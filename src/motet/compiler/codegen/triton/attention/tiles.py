"""Sizes of the tiles that groups of warps take in attention on Hopper: `hopper.py` chooses them,
`warp_specialized.py` and `tile_schedule.py` write the program."""

from __future__ import annotations

from dataclasses import dataclass

OWN = 64  # queries of a group of four warps, as many as its products have rows
MOVING = 32  # registers of each thread of the warps that move tiles
_REGISTERS, _MOST = 65536, 240  # of a processor, and those of a thread that attends


@dataclass(frozen=True)
class Groups:
    """`count` groups of warps, tiles of `keys`, and places for `stages` tiles of keys and values. A group has 64
    queries; all together have a tile of queries and the same keys, or, where they are `apart`, each has its own.
    Programs that `stay` take tile after tile of queries: while one is finished, the keys of the next are fetched. Where
    queries hide keys, tiles of `heads` heads go together. A program has a processor for itself."""

    count: int
    keys: int
    stages: int
    stay: bool = False
    apart: bool = False
    heads: int = 8

    @property
    def at_once(self) -> int:
        """Tiles of queries that a program has at a time."""
        return self.count if self.apart else 1

    @property
    def rows(self) -> int:
        """Queries of a tile."""
        return self.count // self.at_once * OWN

    @property
    def places(self) -> int:
        """For tiles of keys, and of values."""
        return self.stages * self.at_once

    @property
    def label(self) -> str:
        apart = f" apart={self.count}" if self.apart else ""
        return f"groups {self.rows}x{self.keys} stages={self.stages}{apart}{' stay' if self.stay else ''}"

    def attending(self, movers: int) -> int:
        """Registers of each thread that attends, beside `movers` warps that move tiles: they are given out to four
        warps at a time."""
        moving = -(-movers // 4)
        share = _REGISTERS // (128 * (self.count + moving)) // 8 * 8
        return min(_MOST, (share * (self.count + moving) - MOVING * moving) // self.count // 8 * 8)
