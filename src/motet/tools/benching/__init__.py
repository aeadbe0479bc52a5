"""What `motet bench` measures.

    inputs.py        the arrays of a call
    latency.py       the time of each call: percentiles, and samples of several calls
    throughput.py    calls that are in flight at the same time
    versus.py        two programs, alternately
    disturbance.py   other work on the machine during a measurement
    roof.py          the figures next to this machine's limits
    writing.py       the JSON
"""
