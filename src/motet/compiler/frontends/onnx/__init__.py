"""ONNX models: reads them, rewrites them operator by operator, and lowers them."""
