"""The machines that Motet has an agent for: how QEMU is started for each. A board needs an image only."""

from __future__ import annotations

from dataclasses import dataclass

# LLVM's architecture at the start of a triple, by that of images.
FEATURES = {
    "cortex-m55": frozenset({"mve.fp", "fp64"}), "cortex-m7": frozenset({"fp64"}), "cortex-m4": frozenset[str](),
    "rv64gc": frozenset[str](), "rv32gc": frozenset[str](),
}


@dataclass(frozen=True)
class EmbeddedMachine:
    """`cpu` is the compiler's target; `program` is QEMU's, from Debian's `package`, with `arguments`; `shift` sets the
    time that an instruction takes if they are counted, 2**shift ns."""

    name: str
    cpu: str
    program: str
    package: str
    arguments: tuple[str, ...]
    shift: int

    @property
    def image(self) -> str:
        """The file of its agent."""
        return f"{self.cpu}.{self.name.removesuffix('32')}.elf"


def _arm(name: str, cpu: str) -> EmbeddedMachine:
    return EmbeddedMachine(name, cpu, "qemu-system-arm", "qemu-system-arm", ("-M", name), 5)


def _riscv(name: str, cpu: str, bits: int) -> EmbeddedMachine:
    arguments = ("-M", "virt", "-bios", "none", "-m", "64M")
    return EmbeddedMachine(name, cpu, f"qemu-system-riscv{bits}", "qemu-system-misc", arguments, 0)


MACHINES = {
    machine.name: machine
    for machine in (
        _arm("mps3-an547", "cortex-m55"), _arm("mps2-an500", "cortex-m7"), _arm("mps2-an386", "cortex-m4"),
        _riscv("virt", "rv64gc", 64), _riscv("virt32", "rv32gc", 32),
    )
}


def machine_of_cpu(cpu: str) -> EmbeddedMachine | None:
    """The machine with a processor; None if there is none."""
    return next((machine for machine in MACHINES.values() if machine.cpu == cpu), None)
