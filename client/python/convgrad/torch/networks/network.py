"""Provides remote() and RemoteNetwork, which trains a model on a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any, overload

import torch
from torch import nn

from convgrad.attached import Attached
from convgrad.client import Client
from convgrad.errors import invalid, unimplemented
from convgrad.local.server import default_client
from convgrad.networks import Backward, Update, gradient_name
from convgrad.sessions.session import Session
from convgrad.torch.idle_threads import quieten_for
from convgrad.torch.networks.attached import AttachedNetwork
from convgrad.torch.networks.forwards.exporting import shapes_of
from convgrad.torch.networks.importing import filled, loss_of
from convgrad.torch.networks.module import signed
from convgrad.torch.networks.parameters import RemoteParameter
from convgrad.torch.networks.pipeline import mapped
from convgrad.torch.networks.run import DTYPES, Forward, compute_dtype_of, inputs_of
from convgrad.torch.networks.state import RemoteState
from convgrad.torch.networks.tracing import bind, check_model, check_version
from convgrad.torch.networks.trainer_state import TrainerState
from convgrad.torch.networks.variants import for_dtype, predicting
from convgrad.torch.remote_optimizer import RemoteOptimizer
from convgrad.torch.tensors import to_array
from convgrad.tracebacks import short_traceback

Tensor = torch.Tensor


@overload
def remote(model: nn.Module, server: Attached, *, dtype: torch.dtype = torch.float32,
           ) -> AttachedNetwork: ...


@overload
def remote(model: nn.Module, server: Client | Session | None = None, *,
           dtype: torch.dtype = torch.float32, put: bool = True,
           recompute: bool = False, fast: bool | None = None, durable: bool = False,
           ) -> RemoteNetwork: ...


@short_traceback
def remote(model: nn.Module, server: Client | Session | Attached | None = None, *,
           dtype: torch.dtype = torch.float32, put: bool = True, recompute: bool = False,
           fast: bool | None = None, durable: bool = False) -> RemoteNetwork | AttachedNetwork:
    """Puts a model on the server, and returns a module that stands for it.

        net = convgrad.torch.remote(model, client)
        optimizer = convgrad.torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()

    `server` is a client, for which remote() opens a session, or a session. The default is this
    process's own server; see convgrad.LocalServer. remote() copies parameters and buffers into
    the session under their own names. With `put=False` it uses those that the session has, e.g.
    after resuming it; give the optimizer `resume=True` then.

    `durable=True` opens a durable session, for a client: the training survives a restart of the
    server. For one that also survives its own process, give client.session(durable=True).

    Later changes of `model` have no effect, and the network's next call logs a warning about
    them. Change `net.model` instead.

    `dtype=torch.bfloat16` computes activations in bf16, as under autocast; parameters and their
    gradients stay float32. `recompute=True` recomputes activations in the backward instead of
    keeping them: less memory, more time, the same bits. `fast=False` forbids Winograd's
    algorithm for 3x3 and 3x3x3 kernels in float32, which takes half the time, with other
    rounding errors; by default the server's --fast_convolutions decides.

    If `server` is client.attach(session_id), the network predicts with weights that another
    process trains; see AttachedNetwork. remote() puts nothing then.

    The first call with another image size, dtype, mode or argument exports the model again,
    which takes about a second of processor time for a ResNet-50. So does the first batch of 1.
    Other batch sizes need no export, unless the forward depends on the batch.

    Errors: Unimplemented for a PyTorch before 2.6, or naming modules and operators that a
    server can't compute. remote() finds some of these itself; the network's first call finds
    the others. explain() lists all of them. AlreadyExists if the session has tensors with these
    names.
    """
    check_version()
    check_model(model)
    if dtype not in DTYPES:
        raise invalid("DTYPE_MISMATCH", "dtype", dtype, "torch.float32 or torch.bfloat16")
    if server is None:
        server = default_client()
    if isinstance(server, Attached):
        quieten_for(server.client)
        return AttachedNetwork(model, server, dtype)
    is_own = not isinstance(server, Session)
    if is_own and not isinstance(server, Client):
        raise invalid("INVALID_ENUM", "server", repr(server),
                      "a convgrad.Client, such as Client('localhost:7070'), or a session")
    if durable and not is_own:
        raise invalid("OUT_OF_RANGE", "durable", "True beside a session",
                      "a client, or client.session(durable=True)")
    session = server.session(durable=durable) if isinstance(server, Client) else server
    quieten_for(session.client)
    try:
        network = RemoteNetwork(model, session, dtype, is_own, recompute, fast)
        if put:
            network.put_new(model)
    except BaseException:
        if is_own:
            session.close()
        raise
    return network


class RemoteNetwork(RemoteState):
    """A model whose parameters, activations and optimizer are on a server. Owned by one thread.

    Takes the arguments of the model's forward. The attribute `model` is the model without its
    values. The next call uses what was changed there: modes, requires_grad, attributes,
    modules. It puts a new module's tensors on the server, and the module keeps only their
    shapes. Modules, and attributes that the model has, are set on `model` if they are assigned
    to the network.

    Updates, and backwards whose inputs need no gradient, don't wait for the server. If one
    fails, a later call raises its error.
    """

    def __init__(self, model: nn.Module, session: Session, dtype: torch.dtype,
                 owns_session: bool, recompute: bool, fast: bool | None) -> None:
        """Only remote() calls this."""
        super().__init__(model, session, owns_session)
        self.recompute = recompute
        self.fast = fast
        self._dtype = dtype
        self._owns_session = owns_session
        self._is_closed = False
        self._handles: dict[str, RemoteParameter] = {}
        self._finish()

    @signed
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the model's outputs, in their forward's structure, as float32."""
        self._original.look()
        self.follow()
        inputs, constants = bind(self.model, args, kwargs)
        dtype = compute_dtype_of(inputs, self._dtype)
        variant = self._variants.find(inputs, constants, dtype)
        outputs = Forward(self, variant, variant.used(inputs), dtype).outputs()
        return filled(variant.returned, outputs)

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Loads the program with which attached networks of the same model predict.

        Takes forward's arguments; values don't matter. The program is always that of eval mode.
        The session keeps it, also for a process that resumes it.
        """
        self.follow()
        inputs, constants = bind(self.model, args, kwargs)
        variant = predicting(self.model, shapes_of(inputs), constants)
        both = {one.name: one for one in (variant, for_dtype(variant, "bf16"))}
        for one in both.values():
            self._variants.load(one)

    @short_traceback
    def forward_backward(self, *args: Any, **kwargs: Any) -> float:
        """Runs forward and backward with a loss on the server, and returns the loss.

        Takes the model's inputs, then the target: class indices, or a float tensor, for
        cross_entropy of probabilities as mixup makes them. `loss` is "cross_entropy" (default),
        "mse", "l1", "smooth_l1" or "binary_cross_entropy_with_logits". Its keywords: `weight`
        of each class (another one needs another program), `label_smoothing`, `ignore_index`,
        `beta`, `pos_weight` (a number), `reduction` ("mean", "sum"), and `denominator`: what a
        mean divides by where a batch is split over several calls.
        """
        return self.pipeline.result(self.submit_forward_backward(*args, **kwargs))

    @short_traceback
    def submit_forward_backward(self, *args: Any, loss: str = "cross_entropy",
                                **attributes: Any) -> Future[float]:
        """Does the same as forward_backward, and returns a future at once."""
        self.follow()
        return self._submit_loss_run(args, loss, attributes)

    @short_traceback
    def train_step(self, *args: Any, optimizer: RemoteOptimizer, **keywords: Any) -> float:
        """Runs forward, backward and the optimizer's step in one call; returns the loss.

        Does the same as forward_backward(), optimizer.step() and zero_grad(), but atomically:
        either all of it takes effect or nothing. Adds to gradients that exist already.
        `trainer_state` takes effect with the step; see save(). The step draws the seed of its
        dropout masks from torch's default generator. So give a function if the state has that
        generator's state: it is called after the draw.

        Errors: Unimplemented if the optimizer has hooks of its steps.
        """
        return self.pipeline.result(
            self.submit_train_step(*args, optimizer=optimizer, **keywords))

    @short_traceback
    def submit_train_step(self, *args: Any, optimizer: RemoteOptimizer,
                          loss: str = "cross_entropy",
                          trainer_state: TrainerState | None = None,
                          **attributes: Any) -> Future[float]:
        """Does the same as train_step, and returns a future at once."""
        optimizer.check_step_hooks("train_step")
        if optimizer.network is not self:
            raise invalid("INVALID_ENUM", "optimizer", "one of another network",
                          "one of this network's parameters()")
        update = optimizer.update(keep_gradients=False)  # which follows the model
        return self._submit_loss_run(args, loss, attributes, update, trainer_state)

    def named_parameters(  # type: ignore[override]
            self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, RemoteParameter]]:
        """Yields a handle for each parameter, the same one in each call. A handle has the
        Python attributes that the parameter has, and keeps what is set on it."""
        self.follow()
        for name, tensor in self._following.parameters.items():
            handle = self._handles.get(name)
            if handle is None or not handle.stands_for(tensor):
                handle = self._handles[name] = RemoteParameter(self, name, tensor)
            yield f"{prefix}.{name}" if prefix else name, handle

    @short_traceback
    def gradients(self) -> dict[str, Tensor]:
        """Fetches the existing gradients, by the parameter's name."""
        self.follow()
        self.kept_gradients.settle()
        kept = self.pipeline.call(self.session.tensors)
        names = [name for name in self._following.parameters if gradient_name(name) in kept]
        found = self.fetch(map(gradient_name, names))
        return {name: found[gradient_name(name)] for name in names}

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> None:
        """Makes the next optimizer step scale all gradients down to the norm `max_norm` first.

        submit_step() of convgrad.torch.optim returns the norm. The gradients themselves stay
        unscaled. To clip some of them, use torch.nn.utils.clip_grad_norm_().

        Errors: Unimplemented for another norm_type than 2; InvalidArgument. Until the step, it
        is Unimplemented to read, assign, add to or drop some of the gradients.
        """
        if norm_type != 2.0:
            raise unimplemented("clip_grad_norm_.norm_type", norm_type, "2.0")
        if not 0 < max_norm < float("inf"):
            raise invalid("OUT_OF_RANGE", "max_norm", max_norm, "a number above 0")
        self.kept_gradients.clip(float(max_norm))

    def close(self) -> None:
        """Waits for all changes, then ends the session if remote() opened it."""
        if self._is_closed:
            return
        try:
            self.wait()
        finally:
            self._end_session()

    def __enter__(self) -> RemoteNetwork:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self._end_session()

    def _end_session(self) -> None:
        if self._owns_session and not self._is_closed:
            self._is_closed = True
            self.session.close()

    def _submit_loss_run(self, args: tuple[Any, ...], loss: str,
                         attributes: Mapping[str, Any], update: Update | None = None,
                         trainer_state: TrainerState | None = None) -> Future[float]:
        *args_of_model, target = args
        self._original.look()
        inputs, constants = bind(self.model, tuple(args_of_model), {})
        found = loss_of(loss, attributes, target)
        dtype = compute_dtype_of(inputs, self._dtype)
        variant = self._variants.find(inputs, constants, dtype, found)
        arrays = inputs_of(variant, variant.used(inputs), dtype, self.session.client)
        arrays[variant.target] = to_array(target.long() if found.is_index else target)
        name = next(iter(variant.sources))  # the loss is the first output
        with self.kept_gradients.sending(variant.trainable, update):
            self.draw_seed(variant)
            future = self.pipeline.submit(
                self.session.run, variant.name, arrays, fetched=[name], compute_dtype=dtype,
                backward=Backward(leave_parameters=not variant.trainable),
                update=update, fast=self.fast, recompute=self.recompute,
                trainer_state=self.encoded(trainer_state))
        return mapped(future, lambda run: float(run.values[name]), variant.name_step)
