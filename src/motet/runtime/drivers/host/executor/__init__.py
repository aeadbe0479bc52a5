"""The host's executor as LLVM IR: thread pool, executor of schedules, and the call from Python.

`build.py` compiles it to one object for each architecture (`support-*.o`), contained in the package, so that the
runtime needs neither a compiler nor a compiled extension. The runtime imports none of these modules.
"""
