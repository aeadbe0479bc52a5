"""Shared by drivers, so that each driver contains only what is specific to its devices.

`base.py` is a device with all argument checks, `queued.py` one whose queues are threads of this process
(`work_queue.py`). `streams.py` is the interface to a vendor's library that the shared parts of GPU drivers require:
`stream_queue.py`, `block_pool.py`, `staging.py` and `transfers.py`. `recording.py` has the checks, `lifetime.py` the
resources that outlive their owner.
"""
