"""Programs that launch kernels on a GPU (the dialect `gpu`), as programs of loops.

`spellings.py` makes text without its kernels' module parse; `checks.py` has what a launch must keep to; `kernels.py`
makes one block of each kernel, without calls (`calls.py`), vectors (`vectors.py`) and memory of unknown types
(`dynamic_memory.py`); `threads.py` runs the threads of a workgroup one after the other between barriers;
`lower_launches.py` puts them together and takes the host's side: memory, copies and tokens, and loops around launches
(`unroll_loops.py`). `keep_launches.py` and `keep_loops.py` keep what GPUs run as it was written.
"""
