"""Compiles launches of the dialect `gpu` as written, for NVIDIA's GPUs.

`written.py` reads the kept launch; `body.py` makes its kernel a function of block and thread number; `collectives.py`
lowers operations among threads to shuffles and barriers; `lower.py` runs upstream's passes to LLVM IR; `entry.py`
writes the function that the driver calls; `emit.py` combines them; `ptx.py` makes PTX and machine code by LLVM and
NVIDIA's assembler.
"""
