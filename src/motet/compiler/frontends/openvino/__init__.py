"""OpenVINO models and IR files: every operator is written in ONNX's operators, which Motet lowers."""
