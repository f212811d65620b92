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
# Modes that torch.export changes, and whether it follows.
_ASKED = ("is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled",
          "is_autocast_cpu_enabled")
_FOLLOWED = ("is_compiling", "is_exporting")
# What calls find out of a tensor that differs between calls, or tell its gradient.
_OF_ONE_CALL = frozenset((
    "is_contiguous", "stride", "storage_offset", "requires_grad", "requires_grad_", "is_leaf",
    "is_inference", "grad", "grad_fn", "register_hook", "register_post_accumulate_grad_hook"))


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
        self._batches: list[Any] = []  # of all calls
        self._guards = 0
        self._caller: Any = None
        self._refused: Unimplemented | None = None
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
        self._paths, self._caller = [""], caller
        found = [batch for batch in batches if isinstance(batch, _TORCH.SymInt)]
        self._batches = self._batches + found if found else []
        with _TORCH.fx.traceback.preserve_node_meta(), self._answering(), self:
            yield

    def __torch_function__(self, func: Any, _types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name not in _MODES:
            self._check()
        is_attribute = name in ("__get__", "__set__")
        asked = getattr(func.__self__, "__name__", "") if is_attribute else name
        is_known = (asked, name) == ("requires_grad", "__get__") and isinstance(
            args[0], nn.Parameter)
        if asked in _OF_ONE_CALL and not is_known and not _is_from_inside(asked):
            self._refuse_question(f"'{asked}' of a tensor")
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

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Answers the forward's questions about modes as outside of torch.export, or refuses
        them. Other threads and torch itself get torch.export's answers."""
        own_thread = threading.get_ident()

        def answer(name: str, own: Any) -> Any:
            def function(*args: Any, **kwargs: Any) -> Any:
                if threading.get_ident() != own_thread or _is_from_inside(name):
                    return own(*args, **kwargs)
                if name in _ASKED:
                    self._refuse_question(f"torch.{name}()")
                return False

            return function

        found = [(place, name, getattr(place, name)) for place, names in (
            (torch, _ASKED), (_TORCH.compiler, _FOLLOWED)) for name in names
            if hasattr(place, name)]
        for place, name, own in found:
            setattr(place, name, answer(name, own))
        try:
            yield
        finally:
            for place, name, own in found:
                setattr(place, name, own)

    def _refuse_question(self, found: str) -> None:
        """Raises Unimplemented, in check() again if the forward catches it."""
        where = named(self._model.get_submodule(self.path), self.path)
        self._refused = refuse(where, f"{found} in a forward",
                               "a forward that does the same in each call")
        raise self._refused

    def check(self) -> None:
        """Raises Unimplemented if the forward's graph doesn't hold for every call."""
        if self._refused is not None:
            raise self._refused

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
        if self._batches and self._refused is None:
            reason = self._what_fixed_a_batch()
            if reason:
                self._refused = refuse(
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
            if not now.is_symbol:
                return f"a batch of {now} alone"
        new, self._guards = env.guards[self._guards:], len(env.guards)
        # Inputs with the same batch have it in each call.
        hints = [batch.node.hint for batch in self._batches]
        same = {symbol: symbols[hints.index(hint)] for symbol, hint in zip(symbols, hints)}
        for guard in new:
            if env.replace(guard.expr).subs(same) != True:  # noqa: E712, sympy's
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


def _is_inside(frame: types.FrameType) -> bool:
    """Returns whether torch or this package calls, not a user's forward."""
    return frame.f_code.co_filename.startswith(INSIDE)


def _is_from_inside(name: str) -> bool:
    """Returns whether torch or this package has called the caller, a function called `name`."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_name in (name, "handle_torch_function"):
        frame = frame.f_back
    return _is_inside(frame)


def _line_under_way(until: types.CodeType) -> str:
    """Returns file and line of the innermost code outside torch and this package, if any."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not until:
        if not _is_inside(frame):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def line_of_error(error: BaseException) -> str:
    """Returns file and line of the innermost such code in the error's traceback."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not _is_inside(frame):
            found = f"{frame.f_code.co_filename}:{line}"
    return found
