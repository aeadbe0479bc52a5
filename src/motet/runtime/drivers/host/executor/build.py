"""Builds the executor: a relocatable object for each architecture, next to the loader. Needs LLVM.

    python -m motet.runtime.drivers.host.executor.build
"""

from __future__ import annotations

import sys
from pathlib import Path

from llvmlite import binding

from motet.runtime.drivers.host.executor.source import TARGETS, ExecutorTarget, executor_ir


def build(target: ExecutorTarget) -> bytes:
    """The executor for a machine as a relocatable object."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small", abiname=target.abi
    )
    module = binding.parse_assembly(executor_ir(target))
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    return machine.emit_object(module)


def path(target: ExecutorTarget) -> Path:
    """The path at which the runtime expects the object."""
    return Path(__file__).parent.parent / f"support-{target.name}.o"


def main() -> None:
    for target in TARGETS:
        data = build(target)
        path(target).write_bytes(data)
        sys.stdout.write(f"{path(target)}: {len(data):,} bytes\n")


if __name__ == "__main__":
    main()
