"""Device expressions, as far as the compiler needs them: which processor levels `host{…}` asks for."""

from __future__ import annotations

from motet.compiler.targets.cpu import CPU_TARGETS
from motet.errors import OptionError

DEFAULT_TARGETS = ("x86-64-v4-amx", "x86-64-v4-vnni", "x86-64-v4", "x86-64-v3")
FAMILIES = ("host",)
HOST_OPTIONS = ("cpu",)


def cpu_levels(expression: str) -> list[str]:
    """The levels that a device expression names: `host` the default ones, `host{cpu=x86-64-v4+x86-64-v3}`
    those listed, in order of preference."""
    family, brace, rest = expression.strip().partition("{")
    if family not in FAMILIES:
        raise OptionError(f"device {expression}: target {family} is unknown; available: {', '.join(FAMILIES)}")
    if not brace:
        return list(DEFAULT_TARGETS)
    if not rest.endswith("}"):
        raise OptionError(f"device {expression}: a closing brace is missing; expected host{{cpu=LEVEL[+LEVEL…]}}")
    levels: list[str] = []
    for pair in filter(None, (part.strip() for part in rest[:-1].split(","))):
        name, _, value = pair.partition("=")
        if name not in HOST_OPTIONS:
            raise OptionError(f"device {expression}: option {name} is unknown; available: {', '.join(HOST_OPTIONS)}")
        levels += [_level(part.strip(), expression) for part in value.split("+")]
    return levels or list(DEFAULT_TARGETS)


def _level(name: str, expression: str) -> str:
    known = (*CPU_TARGETS, "native")
    if name not in known:
        raise OptionError(f"device {expression}: cpu {name or '(empty)'} is unknown; available: {', '.join(known)}")
    return name
