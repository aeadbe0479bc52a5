"""Proves that the parts of a plan (`division.py`) end on all ranks, from the parts alone, before anything runs.

It shows three things:
1. Each send has one receive with its tag on the rank that it names, which names the sender; and no receive lacks one.
2. The messages of two ranks, in one direction, are sent and received in one order.
3. No rank waits for itself through others. A rank submits its steps in order. A step that blocks the rank holds up all
   steps after it; a receive blocks the steps that read its value, and a send waits for the value that it sends.

A transport delivers each message that is sent and received, so every step is reached, and the call ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from motet.artifact.schema import Plan, Step
from motet.errors import ArtifactError

Blocks = Callable[[int, int], bool]  # whether a device, by rank and number, blocks its rank while it works


@dataclass(frozen=True)
class RankProof:
    """What was proved: the number of `steps` of all ranks, and of `messages` between them."""

    steps: int
    messages: int


def prove(plans: Sequence[Plan], blocks: Blocks, where: str) -> RankProof:
    """Check the parts of a plan, by rank. Raises ArtifactError, with the ranks and steps, if one may never end."""
    sends = _messages(plans, "send", where)
    receives = _messages(plans, "receive", where)
    for key in sends.keys() ^ receives.keys():
        source, target, tag = key
        if key in sends:
            raise ArtifactError(f"{where}: rank {source}, step {sends[key]}, sends message {tag} to rank {target}, "
                                "which does not receive it")
        raise ArtifactError(f"{where}: rank {target}, step {receives[key]}, receives message {tag} of rank {source}, "
                            "which does not send it")
    _check_orders(sends, receives, where)
    _check_circles(plans, sends, receives, blocks, where)
    return RankProof(sum(len(plan.steps) for plan in plans), len(sends))


_Key = tuple[int, int, int]  # source, target, tag


def _messages(plans: Sequence[Plan], op: str, where: str) -> dict[_Key, int]:
    """The place of each message in the plan of its sender or receiver."""
    found: dict[_Key, int] = {}
    for rank, plan in enumerate(plans):
        for place, step in enumerate(plan.steps):
            if step.op != op:
                continue
            if not 0 <= step.peer < len(plans) or step.peer == rank:
                raise ArtifactError(f"{where}: rank {rank}, step {place}: {op}s message {step.tag} with rank "
                                    f"{step.peer}; expected another of {len(plans)} ranks")
            key = (rank, step.peer, step.tag) if op == "send" else (step.peer, rank, step.tag)
            if key in found:
                raise ArtifactError(f"{where}: rank {rank}, step {place}: message {step.tag} is also that of step "
                                    f"{found[key]}")
            found[key] = place
    return found


def _check_orders(sends: dict[_Key, int], receives: dict[_Key, int], where: str) -> None:
    pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for source, target, tag in sends:
        pairs[source, target].append(tag)
    for (source, target), tags in pairs.items():
        sent = sorted(tags, key=lambda tag: sends[source, target, tag])
        received = sorted(tags, key=lambda tag: receives[source, target, tag])
        for first, second in zip(sent, received, strict=True):
            if first != second:
                raise ArtifactError(f"{where}: rank {source} sends message {first} to rank {target} where that "
                                    f"receives {second}")


def _check_circles(
    plans: Sequence[Plan], sends: dict[_Key, int], receives: dict[_Key, int], blocks: Blocks, where: str
) -> None:
    """Raises ArtifactError for steps that wait for one another."""
    begins = [0]
    for plan in plans:
        begins.append(begins[-1] + len(plan.steps))
    needs: list[set[int]] = [set() for _ in range(begins[-1])]
    for rank, plan in enumerate(plans):
        _add_needs(plan, begins[rank], lambda device, rank=rank: blocks(rank, device), needs)
    for (source, target, tag), place in receives.items():
        needs[begins[target] + place].add(begins[source] + sends[source, target, tag])
    left = _unreached(needs)
    if left:
        circle = _circle(needs, left)
        raise ArtifactError(f"{where}: steps wait for one another: "
                            + " → ".join(_named(plans, begins, node) for node in circle))


def _add_needs(plan: Plan, first: int, blocks: Callable[[int], bool], needs: list[set[int]]) -> None:
    """The steps of one rank that must end, or be submitted, before each of its steps ends."""
    makers: dict[int, int] = {}
    held: int | None = None
    for place, step in enumerate(plan.steps):
        own = needs[first + place]
        own.update(makers[value] for value in step.operands if value in makers)
        if held is not None:
            own.add(held)
        if step.op == "loop" or (step.op == "run" and blocks(step.device)):
            held = first + place
        makers.update(dict.fromkeys(step.results, first + place))


def _unreached(needs: Sequence[set[int]]) -> set[int]:
    readers: dict[int, list[int]] = defaultdict(list)
    for node, sources in enumerate(needs):
        for source in sources:
            readers[source].append(node)
    missing = [len(sources) for sources in needs]
    ready = [node for node, count in enumerate(missing) if not count]
    reached: set[int] = set()
    while ready:
        node = ready.pop()
        reached.add(node)
        for reader in readers[node]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return set(range(len(needs))) - reached


def _circle(needs: Sequence[set[int]], left: set[int]) -> list[int]:
    """Nodes that need one another, the first one again at the end."""
    path = [min(left)]
    while True:
        following = min(needs[path[-1]] & left)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)


def _named(plans: Sequence[Plan], begins: Sequence[int], node: int) -> str:
    rank = max(number for number in range(len(plans)) if begins[number] <= node)
    step = plans[rank].steps[node - begins[rank]]
    return f"rank {rank}, step {node - begins[rank]} ({_text(step)})"


def _text(step: Step) -> str:
    if step.op in ("send", "receive"):
        return f"{step.op} {step.tag} {'to' if step.op == 'send' else 'from'} rank {step.peer}"
    return f"{step.op} {step.region}".strip()
