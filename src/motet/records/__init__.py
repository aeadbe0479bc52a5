"""Records of measured schedules: what the lab writes, and the compiler reads."""
