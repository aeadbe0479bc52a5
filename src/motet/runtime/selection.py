"""Which of an artifact's variants this machine runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from motet.artifact.schema import Variant
from motet.errors import DeviceError

HOST = "host"


def choose(variants: Sequence[Variant], architecture: str, features: Collection[str], where: str) -> Variant:
    """The first variant, in the artifact's order of preference, that a processor with `features` can run.

    Raises DeviceError that says of each variant what it needs and what of it is lacking.
    """
    reasons: list[str] = []
    for variant in variants:
        reason = _obstacle(variant, architecture, features)
        if reason is None:
            return variant
        reasons.append(f"{variant.target} ({reason})")
    listing = "; ".join(reasons) or "none"
    raise DeviceError(
        f"{where}: none of its variants runs on this machine ({architecture}): {listing}; "
        "compile for a target that it has"
    )


def _obstacle(variant: Variant, architecture: str, features: Collection[str]) -> str | None:
    if variant.family not in (HOST, "cpu"):
        return f"for {variant.family} devices, of which this session has none"
    if (needed := variant.triple.split("-")[0]) != architecture:
        return f"for {needed}"
    missing = [feature for feature in variant.features if feature not in features]
    return f"needs {', '.join(missing)}, which the processor lacks" if missing else None


def check_devices(devices: str | Mapping[str, str] | None) -> None:
    """Raises DeviceError if a device is named that sessions cannot be bound to."""
    names = [devices] if isinstance(devices, str) else list((devices or {}).values())
    for name in names:
        if name != HOST:
            raise DeviceError(f"device {name!r}: not a device that can be bound; there are: {HOST}")
