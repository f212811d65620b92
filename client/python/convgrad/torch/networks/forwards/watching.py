"""Watches a forward during its export: tracks the current module, and refuses what a program
can't express."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
import torch.fx.traceback
from torch import nn
from torch.overrides import TorchFunctionMode

from convgrad.errors import Unimplemented
from convgrad.torch.layers.functional import autocast_dtype
from convgrad.torch.networks.forwards import effects
from convgrad.torch.networks.refusals import VALUES, named, refuse

# Untyped, because types are checked with PyTorch 1.13, which lacks some of its names.
_TORCH: Any = torch
# Code in these folders isn't a user's forward.
INSIDE = (os.path.dirname(torch.__file__) + os.sep,
          __file__.rsplit(os.sep, 3)[0] + os.sep, "<")
LINE = "convgrad_line"
"""Key of file and line in a node's "custom" entry, if this PyTorch annotates nodes."""
_annotate: Any = getattr(torch.fx.traceback, "annotate", contextlib.nullcontext)
_MODES = ("_set_grad_enabled", "_enter_autocast", "_exit_autocast")
# Modes that torch.export changes, and whether it follows.
_ASKED = ("is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled",
          "is_autocast_cpu_enabled")
_FOLLOWED = ("is_compiling", "is_exporting")
# Attributes of a tensor that differ between calls, or that belong to its gradient.
_OF_ONE_CALL = frozenset((
    "is_contiguous", "stride", "storage_offset", "requires_grad", "requires_grad_", "is_leaf",
    "is_inference", "grad", "grad_fn", "register_hook", "register_post_accumulate_grad_hook"))
# Methods that read a tensor's values.
_READ = ("numpy", "__array__", "__format__", "data_ptr", "__deepcopy__", "__dlpack__")
_GRADIENTS = "gradients computed in a forward", "a backward of what the network returns"
_REFUSED: Mapping[Any, tuple[str, str]] = {
    _TORCH.Tensor.data.__set__: ("an assignment to 'data' of a tensor", "x.copy_(y)"),
    _TORCH.Tensor.__reduce_ex__: VALUES,  # which copy.copy() calls, too
    _TORCH.Tensor.backward: _GRADIENTS, _TORCH.autograd.grad: _GRADIENTS}


class Watch(TorchFunctionMode):
    """Intercepts each call of torch that one forward makes. Owned by one thread.

    Raises Unimplemented if the forward calls torch in inference mode, under an autocast of its
    own or inside an autograd.Function, and for questions that calls answer differently.
    """

    def __init__(self, model: nn.Module, original: nn.Module,
                 call: effects.Call | None) -> None:
        """Registers hooks in `model`, a copy of `original`. Answers questions as in `call`;
        None: raises Asked."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._model = model
        self._call = call
        self._is_plain = all(p.stride() == torch.empty(p.shape, device="meta").stride()
                             for p in original.parameters())
        self._autocasts = self._checkpoints = 0  # which the forward is in
        self._enables_grad = False
        self._autocast = autocast_dtype(torch.empty(0))
        self._probe = torch.empty(0)
        self._forwards = effects.forwards_of_functions()
        self._paths = [""]
        self._batches: list[Any] = []  # of all calls
        self._guards = 0
        self._caller: Any = None
        self._refused: Exception | None = None
        self.returned: Any = None
        """The forward's result, in its original structure."""
        self.raised: Exception | None = None
        """The last exception that a call of torch has raised."""
        for path, module in model.named_modules():
            module.register_forward_pre_hook(lambda _m, _x, path=path: self._paths.append(path))
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
        elif name != "_set_grad_enabled":
            self._autocasts += 1 if name == "_enter_autocast" else -1
        elif _is_within("pack_hook"):
            # A checkpoint's, which torch.export would keep for what follows.
            with _TORCH._C.DisableTorchFunction():
                return func(*args)
        elif args[0] and not _is_within("__exit__"):
            self._enables_grad = True
        if func in _REFUSED:
            self._stop(*_REFUSED[func])
        is_attribute = name in ("__get__", "__set__")
        asked = getattr(func.__self__, "__name__", "") if is_attribute else name
        if asked in _OF_ONE_CALL and not _is_from_inside(asked):
            return self._answer(asked, func, args, kwargs or {})
        if func == _TORCH.Tensor.data.__get__ and not _is_from_inside(asked):
            func = torch.Tensor.detach
        try:
            with _annotate({LINE: _line_under_way(self._caller)}):
                result = func(*args, **(kwargs or {}))
                if func is torch.Tensor.contiguous and result is args[0]:
                    # At run time, a tensor with another layout would be copied.
                    return torch.ops.aten.alias.default(result)
                return result
        except Exception as error:
            self.raised = error
            if name in _READ:  # outside of an export, it may not raise
                self._refused = self._refusal(*VALUES)
            raise

    def _answer(self, asked: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Returns what the tensor answers in each call of this kind; otherwise refuses."""
        question, tensor = f"'{asked}' of a tensor", args[0]
        is_read = func.__name__ == "__get__" and asked in ("requires_grad", "grad")
        if isinstance(tensor, nn.Parameter) and (
                is_read and asked != "grad" or
                self._is_plain and asked in ("stride", "is_contiguous")):
            return func(*args, **kwargs)
        is_leaf = isinstance(tensor, nn.Parameter) or tensor.is_leaf
        if not is_read or is_leaf and asked == "grad":
            self._refuse_question(question)
        call = self._asked(question)
        if call.enables_grad or is_leaf:
            return func(*args, **kwargs)
        if call.trained:  # In PyTorch, this may be an input itself.
            self._refuse_question(question)
        return None if asked == "grad" else False

    def checkpointed(self, function: Callable[..., Any], _keeps_random_state: bool,
                     *args: Any) -> Any:
        """Does what torch.utils.checkpoint does with use_reentrant=True, except that the server
        keeps the values: without an argument that requires a gradient, the results don't."""
        if not self._checkpoints:
            self._asked("torch.utils.checkpoint")
        trains = any(isinstance(x, torch.Tensor) and x.requires_grad for x in args)
        self._checkpoints += 1
        try:
            with contextlib.nullcontext() if trains else torch.no_grad():
                return function(*args)
        finally:
            self._checkpoints -= 1

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Answers the forward's questions about modes as outside of torch.export, or refuses
        them. Other threads and torch itself get torch.export's answers."""
        threads = {threading.get_ident()}

        def answer(name: str, own: Any) -> Any:
            def function(*args: Any, **kwargs: Any) -> Any:
                if threading.get_ident() not in threads or _is_from_inside(name):
                    return own(*args, **kwargs)
                return name in _ASKED and self._answer_mode(name, own, *args, **kwargs)

            return function

        answers = [(own, answer(name, own)) for place, names in (
            (torch, _ASKED), (_TORCH.compiler, _FOLLOWED),
            (_TORCH.fx._symbolic_trace, ("is_fx_tracing",))) for name in names
            for own in [getattr(place, name, None)] if own is not None]
        spaces = [getattr(type(module).forward, "__globals__", {})
                  for module in self._model.modules()]
        with effects.replaced(answers, spaces):
            try:
                yield
            finally:
                threads.clear()  # the forward may have kept an answer

    def _answer_mode(self, name: str, own: Callable[..., bool], device: str = "cuda") -> bool:
        call = self._asked(f"torch.{name}()")
        if name == "is_inference_mode_enabled":
            return call.is_inference
        if name == "is_grad_enabled":
            return call.enables_grad and own()
        if self._autocasts or device not in ("cpu", "cuda"):
            self._refuse_question(f"torch.{name}()")
        is_of_cpu = device == "cpu" or name == "is_autocast_cpu_enabled"
        return self._autocast is not None if is_of_cpu else call.is_autocast

    def _asked(self, question: str) -> effects.Call:
        """Returns the call that the forward asks about. Raises Asked, in check() again if the
        forward catches it, if there is none."""
        if self._call is None:
            self._refused = effects.Asked()
            raise self._refused
        # A checkpoint's forward and recomputation have different answers.
        if self._checkpoints or self._enables_grad and not self._call.enables_grad:
            self._refuse_question(question)
        return self._call

    def _refuse_question(self, found: str) -> NoReturn:
        self._stop(f"{found} in a forward", "a forward that does the same in each call")

    def _stop(self, found: str, expected: str) -> NoReturn:
        """Raises Unimplemented, in check() again if the forward catches it."""
        self._refused = self._refusal(found, expected)
        raise self._refused

    def check(self) -> None:
        """Raises Unimplemented if the forward's graph doesn't hold for every call."""
        if self._refused is not None:
            raise self._refused

    def _check(self) -> None:
        effects.check_callers(self._forwards, self._caller)
        if torch.is_inference_mode_enabled():
            raise self._refusal("torch.inference_mode() inside a forward", "torch.no_grad()")
        if autocast_dtype(self._probe) not in (None, self._autocast):
            raise self._refusal("autocast inside a forward", "autocast around the whole "
                                "network, or remote(..., dtype=torch.bfloat16)")

    def _refusal(self, found: str, expected: str) -> Unimplemented:
        return refuse(named(self._model, self.path), found, expected,
                      _line_under_way(self._caller))

    def _leave(self, path: str) -> None:
        if self._batches and self._refused is None and (
                reason := self._what_fixed_a_batch()):
            self._refused = refuse(named(self._model, path), reason,
                                   "a forward that does the same for every batch")
        while self._paths.pop() != path:  # modules whose errors the forward has caught
            pass

    def _what_fixed_a_batch(self) -> str:
        """Returns why the graph is wrong for some batch sizes; "" if it isn't."""
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


def is_inside(frame: types.FrameType) -> bool:
    """Returns whether torch or this package calls, not a user's forward."""
    return frame.f_code.co_filename.startswith(INSIDE)


def _is_from_inside(name: str) -> bool:
    """Returns whether torch or this package has called the caller, a function called `name`."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_name in (name, "handle_torch_function"):
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(INSIDE[:2])  # not a prompt's code, "<stdin>"


def _is_within(name: str) -> bool:
    """Returns whether a function of torch's with this name has set a mode."""
    for frame, _ in traceback.walk_stack(sys._getframe(2)):
        if not frame.f_code.co_filename.startswith(INSIDE[0]):
            break
        if frame.f_code.co_name == name:
            return True
    return False


def _line_under_way(until: types.CodeType) -> str:
    """Returns file and line of the innermost code outside torch and this package, if any."""
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        if frame.f_code is until:
            break
        if not is_inside(frame):
            return f"{frame.f_code.co_filename}:{line}"
    return ""
