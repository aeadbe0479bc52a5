"""Measurements that the command line and the lab share: latency, other work on the machine, rates of devices."""
