"""Programs that launch kernels on a GPU (the dialect `gpu`), converted to loops.

`spellings.py` makes text without its kernels' module parse. `checks.py` checks launches. `kernels.py` converts each
kernel to one block, without calls (`calls.py`), vectors (`vectors.py`) and memory of unknown types
(`dynamic_memory.py`). `threads.py` runs the threads of a block one after the other between barriers.
`lower_launches.py` combines these and lowers the host's side: memory, copies, tokens, and loops around launches
(`unroll_loops.py`). `keep_launches.py` and `keep_loops.py` keep launches and loops as written, for GPUs.
"""
