"""Parses device flags for the compiler: the syntax of `artifact/device_flags.py` and IREE's attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from motet.artifact.device_flags import DeviceFlag, flags_of, parse_flags, parse_flags_or_uris
from motet.artifact.schema import Alternative
from motet.artifact.uri import split_uri
from motet.compiler.ir.hal_attributes import AttributeReader, SpellingError
from motet.compiler.targets.families import families
from motet.errors import OptionError


def parse_device_flags(flags: Iterable[str]) -> tuple[DeviceFlag, ...]:
    """See `parse_flags`."""
    return parse_flags(flags, _attribute)


def parse_device_flags_or_uris(flags: Iterable[str]) -> tuple[DeviceFlag, ...]:
    """See `parse_flags_or_uris`. Options of a URI that imply targets, such as a machine, are those of its
    alternative."""
    return tuple(_with_implied(flag) if flag.uri else flag for flag in parse_flags_or_uris(flags, _attribute))


def _with_implied(flag: DeviceFlag) -> DeviceFlag:
    only = flag.alternatives[0]
    family = families().get(only.family)
    implied = family.implied if family is not None else {}
    chosen = {key: value for key, value in split_uri(flag.uri)[1].items() if value in implied.get(key, {})}
    options = "&".join(f"{key}={value}" for key, value in chosen.items())
    return DeviceFlag(flag.name, (Alternative(only.family, options=options),), flag.uri) if options else flag


def device_flags_of(devices: Mapping[str, str] | str | None) -> tuple[DeviceFlag, ...]:
    """See `flags_of`."""
    return flags_of(devices, _attribute)


def _attribute(text: str, position: int) -> tuple[list[Alternative], int]:
    reader = AttributeReader(text, position)
    try:
        return reader.device(), reader.position
    except SpellingError as error:
        raise OptionError(f"device '{text}': column {error.offset + 1}: {error}") from None
