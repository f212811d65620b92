"""Computes convolutions and their gradients on a convgrad server.

    import convgrad
    with convgrad.Client("localhost:7070") as client:
        y = client.conv_forward(x, w, b, padding=1).output
        g = client.conv_backward(dy, x, w, padding=1)
        g.grad_input, g.grad_weight, g.grad_bias, g.report.seconds.compute

convgrad.aio has the client for asyncio, convgrad.torch the modules for PyTorch.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from convgrad.attached import Attached
from convgrad.client import Client
from convgrad.connections.retries import RetryPolicy
from convgrad.connections.tls import Tls
from convgrad.connections.transport import NATIVE as native
from convgrad.errors import (
    AlreadyExists,
    Cancelled,
    ConvgradError,
    DeadlineExceeded,
    EpochEnded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ReplyLost,
    ResourceExhausted,
    SessionDamaged,
    SessionExpired,
    SessionRestored,
    SessionTakenOver,
    SnapshotDamaged,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from convgrad.kept import Kept
from convgrad.local.server import LocalServer
from convgrad.moving.replaying import Replayed, replay
from convgrad.moving.transfer import Imported, export_session, import_session
from convgrad.networks import Backward, ParameterGroup, Update
from convgrad.programs import Program
from convgrad.region import Region
from convgrad.replies import Forward, Gradients
from convgrad.sessions.leases import OpenSession
from convgrad.sessions.session import Session

if TYPE_CHECKING:
    from convgrad import aio as aio
    from convgrad import torch as torch

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists", "Attached", "Backward", "Cancelled", "Client", "ConvgradError",
    "DeadlineExceeded", "EpochEnded", "FailedPrecondition", "Forward", "Gradients", "Imported",
    "Internal", "InvalidArgument", "Kept", "LocalServer", "NotFound", "OpenSession",
    "ParameterGroup", "PermissionDenied", "Program", "Region", "Replayed", "ReplyLost",
    "ResourceExhausted", "RetryPolicy", "Session", "SessionDamaged", "SessionExpired",
    "SessionRestored", "SessionTakenOver", "SnapshotDamaged", "Tls", "Unauthenticated",
    "Unavailable", "Unimplemented", "Update", "export_session", "import_session", "native",
    "replay",
]


def __getattr__(name: str) -> ModuleType:
    """Imports convgrad.aio and convgrad.torch on first use, because PyTorch may be absent and
    takes seconds to load."""
    if name in ("aio", "torch"):
        return importlib.import_module(f"convgrad.{name}")
    raise AttributeError(f"module 'convgrad' has no attribute {name!r}")
