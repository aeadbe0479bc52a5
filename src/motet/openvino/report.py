"""What became of each operation of a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from motet.openvino.operations import Left


@dataclass(frozen=True)
class Replaced:
    """A part that one call of Motet replaces: the number of its operations of each type, and the types and shapes that
    the call reads and computes."""

    name: str
    types: Counter[str]
    interface: str

    def __str__(self) -> str:
        types = ", ".join(f"{count} {kind}" for kind, count in self.types.most_common(4))
        more = ", …" if len(self.types) > 4 else ""
        return f"{self.name}: {_counted(self.types.total(), 'operation')} ({types}{more}): {self.interface}"


@dataclass
class Report:
    """The parts that Motet computes, and the operations that stay with OpenVINO, with reasons. Constants are not
    listed."""

    replaced: list[Replaced] = field(default_factory=list[Replaced])
    left: list[Left] = field(default_factory=list[Left])

    def __str__(self) -> str:
        count = sum(part.types.total() for part in self.replaced)
        lines = [f"Motet: {_counted(count, 'operation')} in {_counted(len(self.replaced), 'call')}"]
        lines += [f"  {part}" for part in self.replaced]
        lines += [f"OpenVINO: {_counted(len(self.left), 'operation')}"]
        reasons: dict[tuple[str, str], list[str]] = {}
        for left in self.left:
            reasons.setdefault((left.type, left.reason), []).append(left.name)
        for (kind, reason), names in reasons.items():
            times = f"{len(names)} × {kind}" if len(names) > 1 else kind
            lines.append(f"  {times} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''}): {reason}")
        return "\n".join(lines)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
