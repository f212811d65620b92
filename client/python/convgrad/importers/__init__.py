"""Has the code that the importers of PyTorch's graphs and of ONNX models share."""
