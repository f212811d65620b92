"""Convolution gradients from a convgrad server.

    import convgrad
    with convgrad.Client("localhost:7070") as client:
        y = client.conv_forward(x, w, b, padding=1).output
        g = client.conv_backward(dy, x, w, padding=1)
        g.grad_input, g.grad_weight, g.grad_bias, g.report.seconds.compute

convgrad.aio has the client for asyncio, convgrad.torch the modules for PyTorch.
"""

from convgrad.channels import Tls
from convgrad.client import Client
from convgrad.errors import (
                             Cancelled,
                             ConvgradError,
                             DeadlineExceeded,
                             FailedPrecondition,
                             Internal,
                             InvalidArgument,
                             NotFound,
                             PermissionDenied,
                             ResourceExhausted,
                             Unauthenticated,
                             Unavailable,
                             Unimplemented,
)
from convgrad.replies import Forward, Gradients
from convgrad.retries import RetryPolicy

__all__ = [
    "Cancelled", "Client", "ConvgradError", "DeadlineExceeded", "FailedPrecondition",
    "Forward", "Gradients", "Internal", "InvalidArgument", "NotFound", "PermissionDenied",
    "ResourceExhausted", "RetryPolicy", "Tls", "Unauthenticated", "Unavailable",
    "Unimplemented",
]
