"""What `motet bench` measures, by `motet/measuring/`: the time of calls, and other work on the machine meanwhile.

    inputs.py        the arrays of a call
    throughput.py    calls that are in flight at the same time
    versus.py        two programs, alternately
    roof.py          the figures next to this machine's limits
    writing.py       the JSON
"""
