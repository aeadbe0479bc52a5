"""What drivers have in common, so that a driver holds only what is peculiar to its devices.

`base.py` is a device with every argument check, `queued.py` one whose queues are threads of this process
(`work_queue.py`). `streams.py` says what a vendor's interface must offer for the parts that GPUs share:
`stream_queue.py`, `block_pool.py`, `staging.py` and `transfers.py`. `recording.py` has the checks, `lifetime.py` what
outlives its owner.
"""
