"""The forms that a schedule may select for a launch on a GPU, by the tiles of their loops."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from motet.compiler.kernels.schedule import LaunchForm

THREADS = 32  # of a warp

Level = Literal["block", "warp", "thread"]
_SIZES = re.compile(r"\d+(x\d+)*$|[\w-]+=")


@dataclass(frozen=True)
class LaunchTile:
    """`elements` of a loop, which runs over the dimensions `dims`, that a block or a thread computes at a time."""

    dims: tuple[str, ...]
    elements: int
    level: Level = "block"

    @property
    def label(self) -> str:
        """The tile in text: `i#64`, by the innermost of its dimensions."""
        return f"{self.dims[-1]}#{self.elements}"


@dataclass(frozen=True)
class LaunchChoice:
    """A form with its tiles. `specialized` means that some warps load what others compute with."""

    form: LaunchForm
    tiles: tuple[LaunchTile, ...] = ()
    specialized: bool = False

    @property
    def way(self) -> str:
        """The words of the form's label before its sizes, as `ring`; `tiles` if there are none."""
        words: list[str] = []
        for word in self.form.form.split():
            if _SIZES.match(word):
                break
            words.append(word)
        return " ".join(words) or "tiles"

    def elements(self, dim: str, level: Level) -> int | None:
        """The elements of a tile of `level` along a loop over `dim`; None if the form has no such tile."""
        return next((each.elements for each in self.tiles if dim in each.dims and each.level == level), None)
