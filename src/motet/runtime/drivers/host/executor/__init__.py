"""The host's executor: thread pool, executor of schedules and the call from Python, as LLVM IR.

`build.py` compiles it to one object for each machine (`support-*.o`), which the package contains, so that the runtime
needs neither a compiler nor a compiled extension. The runtime imports none of these modules.
"""
