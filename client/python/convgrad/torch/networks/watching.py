"""Watches a forward during its export: tracks the current module, and refuses what a program
can't express."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx.traceback
from torch import nn
from torch.overrides import TorchFunctionMode

from convgrad.errors import Unimplemented
from convgrad.torch.layers.functional import autocast_dtype
from convgrad.torch.networks.effects import check_callers, forwards_of_functions
from convgrad.torch.networks.refusals import named, refuse

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its names.
_TORCH: Any = torch
# Code in these folders isn't a user's forward.
INSIDE = (os.path.dirname(torch.__file__) + os.sep,
          os.path.dirname(os.path.dirname(__file__)) + os.sep, "<")
LINE = "convgrad_line"
"""Key of file and line in a node's "custom" entry, if this PyTorch annotates nodes."""
_annotate: Any = getattr(torch.fx.traceback, "annotate", contextlib.nullcontext)
_MODES = ("_set_grad_enabled", "_enter_autocast", "_exit_autocast")
# Batch sizes for which every condition on the batch must hold.
_SAMPLES = (2, 3, 4, 6, 8, 9, 16, 25, 64, 1000)


class Watch(TorchFunctionMode):
    """Intercepts each call of torch that one forward makes. Owned by one thread.

    Raises Unimplemented if the forward calls torch in inference mode, under an autocast of its
    own or inside an autograd.Function.
    """

    def __init__(self, model: nn.Module) -> None:
        """Registers hooks in `model`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._model = model
        self._autocast = autocast_dtype(torch.empty(0))
        self._probe = torch.empty(0)
        self._forwards = forwards_of_functions()
        self._paths = [""]
        self._batches: list[Any] = []
        self._guards = 0
        self._caller: Any = None
        self._fixed_by: Unimplemented | None = None
        self.returned: Any = None
        """The forward's result, in its original structure."""
        self.in_operator = False
        """Whether a call of torch has raised."""
        for path, module in model.named_modules():
            module.register_forward_pre_hook(lambda _m, _x, path=path: self._enter(path))
            module.register_forward_hook(lambda _m, _x, _y, path=path: self._leave(path))

    @property
    def path(self) -> str:
        """Path of the innermost module whose forward is running or has raised."""
        return self._paths[-1]

    @contextlib.contextmanager
    def following(self, batches: Sequence[Any], caller: types.CodeType) -> Iterator[None]:
        """Watches the calls of the block, a forward that the code `caller` calls. `batches` are
        the first extents of its inputs."""
        self._paths, self._guards, self._caller = [""], 0, caller
        self._batches = [batch for batch in batches if isinstance(batch, _TORCH.SymInt)]
        with _TORCH.fx.traceback.preserve_node_meta(), self:
            yield

    def __torch_function__(self, func: Any, _types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in _MODES:
            self._check()
        try:
            with _annotate({LINE: _line_under_way(self._caller)}):
                result = func(*args, **(kwargs or {}))
                if func is torch.Tensor.contiguous and result is args[0]:
                    # At run time, a tensor with another layout would be copied.
                    result = torch.ops.aten.alias.default(result)
                return result
        except Exception:
            self.in_operator = True
            raise

    def check_batches(self) -> None:
        """Raises Unimplemented if the forward's graph doesn't hold for every batch."""
        if self._fixed_by is not None:
            raise self._fixed_by

    def _check(self) -> None:
        check_callers(self._forwards, self._caller)
        where = named(self._model.get_submodule(self.path), self.path)
        if torch.is_inference_mode_enabled():
            raise refuse(where, "torch.inference_mode() inside a forward",
                         "torch.no_grad()")
        if autocast_dtype(self._probe) not in (None, self._autocast):
            raise refuse(where, "autocast inside a forward",
                         "autocast around the whole network, or "
                         "remote(..., dtype=torch.bfloat16)")

    def _enter(self, path: str) -> None:
        self._paths.append(path)

    def _leave(self, path: str) -> None:
        if self._batches and self._fixed_by is None:
            reason = self._what_fixed_a_batch()
            if reason:
                self._fixed_by = refuse(
                    named(self._model.get_submodule(path), path), reason,
                    "a forward that does the same for every batch")
        while self._paths.pop() != path:  # modules whose errors the forward has caught
            pass

    def _what_fixed_a_batch(self) -> str:
        """Returns the reason why the graph is wrong for some batch sizes; "" if there is none.
        """
        env = self._batches[0].node.shape_env
        symbols = [batch.node.expr for batch in self._batches]
        for symbol in symbols:
            now = env.replace(symbol)
            if now.is_number:
                return f"a batch of {now} alone"
        new, self._guards = env.guards[self._guards:], len(env.guards)
        hints = [batch.node.hint for batch in self._batches]
        for guard in new:
            if not guard.expr.free_symbols <= set(symbols):
                continue
            for sample in _SAMPLES:  # the same for inputs with the same batch size
                sizes = {symbol: sample + 1000 * hints.index(hint)
                         for symbol, hint in zip(symbols, hints)}
                if not guard.expr.subs(sizes):
                    return f"a condition on the batch, {guard.expr}"
        for symbol in symbols:
            bounds = env.var_to_range.get(symbol)
            if bounds is not None and (bounds.lower > 2 or bounds.upper.is_finite and
                                       bounds.upper < 2**31):
                return f"a batch between {bounds.lower} and {bounds.upper} alone"
        return ""


@contextlib.contextmanager
def for_this_thread() -> Iterator[None]:
    """Keeps other threads' modules out of the block's export, because torch.export's tracer
    replaces `__call__` and `__getattr__` of nn.Module for all threads."""
    from torch.fx.experimental import proxy_tensor
    tracers: Any = proxy_tensor
    tracer, own = tracers._ModuleStackTracer, threading.get_ident()
    traced_call, traced_attribute = tracer.call_module, tracer.getattr

    def call_module(self: Any, module: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() == own:
            return traced_call(self, module, forward, args, kwargs)
        return forward(*args, **kwargs)

    def attribute(self: Any, name: str, value: Any, cache: Any) -> Any:
        return traced_attribute(self, name, value, cache) if (
            threading.get_ident() == own) else value

    tracer.call_module, tracer.getattr = call_module, attribute
    try:
        yield
    finally:
        tracer.call_module, tracer.getattr = traced_call, traced_attribute


def _line_under_way(until: types.CodeType) -> str:
    """Returns file and line of the innermost code outside torch and this package, if any."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not until:
        if not frame.f_code.co_filename.startswith(INSIDE):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def line_of_error(error: BaseException) -> str:
    """Returns file and line of the innermost such code in the error's traceback."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not frame.f_code.co_filename.startswith(INSIDE):
            found = f"{frame.f_code.co_filename}:{line}"
    return found
