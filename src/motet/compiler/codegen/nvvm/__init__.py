"""Kernels of the dialect `gpu` as they were written, for NVIDIA's GPUs.

`written.py` reads what was kept of a launch; `body.py` makes its kernel a function of the numbers of its block and
thread; `collectives.py` has what threads do together as shuffles and barriers; `lower.py` goes through upstream's
passes to LLVM IR; `entry.py` is the function that the driver calls; `emit.py` puts them together; `ptx.py` makes PTX
and machine code by LLVM and NVIDIA's assembler.
"""
