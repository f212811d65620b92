"""Makes programs of ONNX models, for sessions to predict and train with.

    network = convgrad.onnx.load("resnet18.onnx")
    network.put(session)
    (logits,) = network.predict(session, images).values()

Needs the package `onnx` (`pip install "onnx>=1.19"`), which reads models and computes
constants. The server sees programs only, never a model's file.
"""

from convgrad.onnx.loading import load
from convgrad.onnx.network import Network
from convgrad.onnx.refusals import Refusal, Refused

__all__ = ["Network", "Refusal", "Refused", "load"]
