"""The lab: schedules of kernels, evaluated, searched, kept and explained, on every device."""
