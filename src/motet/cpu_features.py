"""The features of this machine's CPU, in LLVM's spelling, read from /proc/cpuinfo."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import sys
from collections.abc import Collection
from pathlib import Path

from motet.errors import OptionError

MAX_CPU = "MOTET_MAX_CPU"  # environment variable

# Linux's names that differ from LLVM's by more than the underscore.
X86_NAMES = {
    "pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "bmi1": "bmi", "abm": "lzcnt",
    "pclmulqdq": "pclmul",
    "sha_ni": "sha", "lahf_lm": "sahf", "rdrand": "rdrnd", "hle": "hle", "fsgsbase": "fsgsbase",
    "avx_vnni": "avxvnni", "avx_ifma": "avxifma", "avx_vnni_int8": "avxvnniint8",
    "avx_ne_convert": "avxneconvert",
    "amx_tile": "amx-tile", "amx_int8": "amx-int8", "amx_bf16": "amx-bf16", "amx_fp16": "amx-fp16",
    "sse4a": "sse4a", "3dnowprefetch": "prfchw",
}  # fmt: skip
_ARM = {
    "asimd": "neon", "fp": "fp-armv8", "asimddp": "dotprod", "asimdhp": "fullfp16", "asimdfhm": "fp16fml",
    "atomics": "lse", "crc32": "crc", "asimdrdm": "rdm", "sveaes": "sve2-aes", "lrcpc": "rcpc",
    "dcpop": "ccpp",
}  # fmt: skip

_LEVELS = {
    "x86-64-v4-amx": {"amx-tile", "amx-int8", "amx-bf16"},
    "x86-64-v4-bf16": {"avx512bf16"},
    "x86-64-v4-vnni": {"avx512vnni"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"},
    "x86-64-v2": {"cx16", "sahf", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"},
}
_VECTORS = ("avx", "amx", "vaes", "vpclmul", "fma4", "xop")  # how the names of vector extensions begin

# Linux grants AMX's tile registers on request, so that only processes that use them pay for saving them.
_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18


def machine() -> str:
    """The architecture as at the start of LLVM triples: `x86_64`, `aarch64`, `riscv64`."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


@functools.cache
def host_features() -> frozenset[str]:
    """The features of this machine's CPU, up to the level in `MOTET_MAX_CPU`, if it is set. Raises OptionError for a
    level that is none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    return up_to(max_level(), parse(text, machine()))


def max_level() -> str | None:
    """The level beyond which Motet uses no instructions on this machine, or None: what `MOTET_MAX_CPU` says. With it a
    machine shows what a program does on an older one."""
    given = os.environ.get(MAX_CPU) or None
    if given is None or machine() != "x86_64":
        return None
    if given not in _LEVELS:
        raise OptionError(f"{MAX_CPU}={given}: no such level; expected one of {', '.join(reversed(_LEVELS))}")
    return given


def up_to(highest: str | None, features: frozenset[str]) -> frozenset[str]:
    """The features of x86-64 without the vector extensions that the level `highest` does not have."""
    if highest is None:
        return features
    names = list(_LEVELS)
    position = names.index(highest)
    kept = frozenset[str]().union(*(_LEVELS[name] for name in names[position:]))
    above = frozenset[str]().union(*(_LEVELS[name] for name in names[:position]))
    return frozenset(f for f in features if f in kept or not (f in above or f.startswith(_VECTORS)))


def allow(features: Collection[str]) -> bool:
    """Request the kernel's permissions that code with `features` needs: AMX's tile registers. They extend to threads
    and forks. False if the kernel refuses."""
    if not any(feature.startswith("amx") for feature in features):
        return True
    if machine() != "x86_64" or not sys.platform.startswith("linux"):
        return False
    return ctypes.CDLL(None).syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0


def parse(cpuinfo: str, architecture: str) -> frozenset[str]:
    """The features listed in `cpuinfo`, the content of /proc/cpuinfo, that every core has."""
    if architecture == "riscv64":
        found = [_riscv(words) for words in re.findall(r"^isa\s*:\s*(\S+)", cpuinfo, re.MULTILINE)]
    elif architecture == "aarch64":
        lines = re.findall(r"^Features\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
        found = [frozenset(_ARM.get(word, word) for word in line.split()) for line in lines]
    else:
        lines = re.findall(r"^flags\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
        found = [frozenset(X86_NAMES.get(word, word.replace("_", "")) for word in line.split()) for line in lines]
    return frozenset.intersection(*found) if found else frozenset()


def _riscv(isa: str) -> frozenset[str]:
    """The extensions of an ISA string such as `rv64imafdcv_zvl256b`; a vector length implies the shorter ones."""
    letters, *extensions = isa.lower().removeprefix("rv64").removeprefix("rv32").split("_")
    features = set(letters.replace("g", "imafd")) | set(extensions)
    lengths = [int(match[1]) for name in extensions if (match := re.fullmatch(r"zvl(\d+)b", name))]
    features |= {f"zvl{1 << bit}b" for bit in range(5, 17) if lengths and 1 << bit <= max(lengths)}
    return frozenset(features)


def level(features: frozenset[str], architecture: str) -> str:
    """The CPU level with these features: `x86-64-v3`; on other architectures the architecture's name."""
    if architecture != "x86_64":
        return "riscv64-v" if architecture == "riscv64" and "v" in features else architecture
    required: set[str] = set()
    reached = "x86-64"
    for name in reversed(_LEVELS):
        required |= _LEVELS[name]
        if required <= features:
            reached = name
    return reached
