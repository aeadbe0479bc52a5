"""Devices and affinities in a program: Motet's syntax, its parsing and printing, and the affinity algebra.

In the IR, once the frontend has converted the syntax of the source:

    "motet.device"() {sym_name = "gpu", alternatives = ["cuda", "hip[1]", "@cpu"]} : () -> ()
    %1 = "motet.transfer"(%0) {to = "gpu"} : (tensor<4xf32>) -> tensor<4xf32>
    %2 = linalg.add … {motet.affinity = "gpu[0,2]"}
    %3 = "motet.loop"(%2, %x) {condition = "f_loop_0_condition", body = "f_loop_0_body", carried = 1 : i64, …}
    func.func @f(%x: tensor<4xf32> {motet.affinity = "cpu"}) -> (tensor<4xf32> {motet.affinity = "cpu|gpu"})
    module attributes {motet.default_device = "cpu",
                       motet.links = ["cpu->gpu", "gpu->cpu:unified,transparent", …]}

An affinity is a device, or several joined by `|` any of which is allowed, each with an optional list of queues. On a
function, `motet.affinity` is the default for its operations, arguments and results. `motet.default_device`, also an
affinity, is for operations that nothing else places; on a function it applies to that function only.

The algebra (join, executability) follows IREE's stream and HAL affinities, since programs of IREE's users are read:
https://github.com/iree-org/iree, compiler/src/iree/compiler/Dialect/HAL/IR.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce

from motet.artifact.device_flags import NAME
from motet.artifact.schema import Link

DEVICE_OP = "motet.device"
TRANSFER_OP = "motet.transfer"
INITIALIZER = "motet.initializer."  # prefix of functions that compute the values of globals
AFFINITY = "motet.affinity"
DEFAULT_DEVICE = "motet.default_device"
LINKS = "motet.links"
STAGE = "motet.stage"  # which of a function's operations are submitted together, when cost has placed them
TURN = "motet.turn"  # the loop, and the turn of it, that an operation was taken out of
GLOBAL_OP = "util.global"  # IREE's: data, or what a session keeps between calls
LOAD_OP = "util.global.load"
STORE_OP = "util.global.store"
LOOP_OP = "motet.loop"  # a loop whose condition and body are functions, which `condition` and `body` name
LOOP_PART = "motet.loop_part"  # on functions: they are the condition or the body of a loop
HOMES, WANTED = "homes", "wanted"  # of a loop: the devices that its results are on, and those it wants its operands on
TO = "to"
ALTERNATIVES = "alternatives"

QUEUES = 64
ANY_QUEUE = (1 << QUEUES) - 1

_LINK = re.compile(rf"({NAME})->({NAME})(?::(.*))?")
_PROPERTIES = ("transparent", "unified")
_TERM = re.compile(rf"({NAME})(?:\[([0-9,\s]*)\])?")


@dataclass(frozen=True)
class Affinity:
    """The devices that an operation or value may be on: pairs of a name and a mask of queues, never empty."""

    devices: tuple[tuple[str, int], ...]

    @property
    def device(self) -> str | None:
        """The device, if there is only one; None otherwise."""
        return self.devices[0][0] if len(self.devices) == 1 else None

    def __str__(self) -> str:
        return "|".join(_print_term(name, mask) for name, mask in self.devices)


def parse_affinity(text: str) -> Affinity:
    """Parses the output of `str`. Raises ValueError with the reason."""
    terms: list[tuple[str, int]] = []
    for part in text.split("|"):
        match = _TERM.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"affinity '{text}': expected DEVICE or DEVICE[QUEUE,…], joined by |")
        terms.append((match[1], ANY_QUEUE if match[2] is None else queue_mask(match[2], text)))
    return reduce(join_or, (Affinity((term,)) for term in terms))


def queue_mask(text: str, where: str) -> int:
    """The mask of a list of queue numbers. Raises ValueError for an empty list or a number outside 0 to 63."""
    numbers = [int(part) for part in text.replace(" ", "").split(",") if part]
    if not numbers:
        raise ValueError(f"affinity '{where}': no queue is listed; expected numbers from 0 to {QUEUES - 1}")
    if wrong := next((n for n in numbers if n >= QUEUES), None):
        raise ValueError(f"affinity '{where}': queue {wrong}; expected numbers from 0 to {QUEUES - 1}")
    return reduce(lambda mask, n: mask | 1 << n, numbers, 0)


def _print_term(name: str, mask: int) -> str:
    if mask == ANY_QUEUE:
        return name
    return f"{name}[{','.join(str(n) for n in range(QUEUES) if mask >> n & 1)}]"


def is_device_name(text: str) -> bool:
    """Whether a text is a valid device name: affinities name devices without quotes."""
    return re.fullmatch(NAME, text) is not None


# -- algebra -------------------------------------------------------------------------------------


def join_or(left: Affinity | None, right: Affinity | None) -> Affinity:
    """The union: masks of one device are united, different devices are alternatives."""
    if left is None or right is None:
        joined = left or right
        if joined is None:
            raise ValueError("no affinity to join")
        return joined
    masks = dict(left.devices)
    for name, mask in right.devices:
        masks[name] = masks.get(name, 0) | mask
    return Affinity(tuple(masks.items()))


def join_and(left: Affinity | None, right: Affinity | None) -> Affinity | None:
    """The intersection of devices and queues; None if it is empty."""
    if left is None or right is None:
        return left or right
    masks = dict(right.devices)
    shared = tuple((name, mask & masks[name]) for name, mask in left.devices if mask & masks.get(name, 0))
    return Affinity(shared) if shared else None


def executable_with(left: Affinity | None, right: Affinity | None) -> bool:
    """Whether an operation of affinity `left` can run as part of one of affinity `right`: on the same device, with its
    queues among the other's. With several devices, each of them must qualify."""
    if left is None or right is None:
        return True
    masks = dict(right.devices)
    return all(name in masks and mask & ~masks[name] == 0 for name, mask in left.devices)


# -- links ---------------------------------------------------------------------------------------


def print_link(link: Link) -> str:
    """The text of a link, `cpu->gpu:transparent,unified`: how the target can access the source's memory."""
    said = [name for name, has in zip(_PROPERTIES, (link.transparent_access, link.unified_memory), strict=True) if has]
    return f"{link.source}->{link.target}" + (f":{','.join(said)}" if said else "")


def parse_link(text: str) -> Link:
    """Parses the output of `print_link`. Raises ValueError with the reason."""
    match = _LINK.fullmatch(text.replace(" ", ""))
    said = match[3].split(",") if match and match[3] else []
    if match is None or not set(said) <= set(_PROPERTIES):
        raise ValueError(f"link '{text}': expected DEVICE->DEVICE, or DEVICE->DEVICE: and of transparent, unified")
    return Link(match[1], match[2], "transparent" in said, "unified" in said)
