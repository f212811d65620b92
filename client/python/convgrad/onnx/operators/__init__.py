"""Makes steps of the nodes of ONNX graphs."""
