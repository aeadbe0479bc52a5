"""What became of each operation of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from motet.openvino.operations import Left
from motet.tools.show import show_table


@dataclass(frozen=True)
class Replaced:
    """A part that one call of Motet replaces: the number of its operations of each type, and the types and shapes that
    the call reads and computes."""

    name: str
    types: Counter[str]
    interface: str

    def __str__(self) -> str:
        return "  ".join(self.row())

    def row(self) -> list[str]:
        """The cells of the report's table."""
        types = ", ".join(f"{count} {kind}" for kind, count in self.types.most_common(4))
        more = ", …" if len(self.types) > 4 else ""
        return [self.name, str(self.types.total()), f"{types}{more}", "", self.interface]


@dataclass
class Report:
    """The parts that Motet computes, and the operations that stay with OpenVINO, with reasons. Constants are not
    listed. Printed as a table: a row for each call, and for all operations of one type that stay for one reason, with
    the calls of which they are the border."""

    replaced: list[Replaced] = field(default_factory=list[Replaced])
    left: list[Left] = field(default_factory=list[Left])

    def __str__(self) -> str:
        count = sum(part.types.total() for part in self.replaced)
        groups: dict[tuple[str, str], list[Left]] = {}
        for left in self.left:
            groups.setdefault((left.type, left.reason), []).append(left)
        rows = [part.row() for part in self.replaced]
        for (kind, reason), group in groups.items():
            between = dict.fromkeys(left.between for left in group if left.between)
            rows.append(["OpenVINO", str(len(group)), f"{kind} {_some([left.name for left in group])}",
                         _some(list(between)), reason])
        header = ["side", "operations", "which", "between", "tensors, or why they stay"]
        return "\n".join([
            f"Motet: {_counted(count, 'operation')} in {_counted(len(self.replaced), 'call')}",
            f"OpenVINO: {_counted(len(self.left), 'operation')}", *show_table(header, rows, "  ")])


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
