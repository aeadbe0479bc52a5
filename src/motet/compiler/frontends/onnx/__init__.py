"""ONNX models: read, rewritten operator by operator, and lowered."""
