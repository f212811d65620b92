"""Manages a network's state on the server: parameters, buffers, gradients, tapes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from torch import nn

from convgrad.errors import AlreadyExists, unimplemented
from convgrad.networks import Run, Update, Updated, average_name, gradient_name
from convgrad.programs import RANDOMNESS
from convgrad.sessions.events import EventThread
from convgrad.sessions.session import Session
from convgrad.torch.networks import absent
from convgrad.torch.networks.endings import end_with
from convgrad.torch.networks.following import Following
from convgrad.torch.networks.importing import Variant
from convgrad.torch.networks.kept_gradients import KeptGradients
from convgrad.torch.networks.module import RemoteModule
from convgrad.torch.networks.original import Original
from convgrad.torch.networks.pipeline import Pipeline
from convgrad.torch.networks.tapes import Tapes
from convgrad.torch.networks.tracing import without_values
from convgrad.torch.networks.trainer_state import TrainerState, decode, encode
from convgrad.torch.networks.variants import Variants
from convgrad.tracebacks import short_traceback

Tensor = torch.Tensor


class RemoteState(RemoteModule):
    """A model whose tensors are in a session. Owned by one thread."""

    recompute: bool
    fast: bool | None

    def __init__(self, model: nn.Module, session: Session, owns_session: bool) -> None:
        super().__init__(without_values(model))
        self._original = Original(model)
        self.session = session
        self.pipeline = Pipeline(session)
        thread = EventThread("convgrad-network")
        self.tapes = Tapes(session, f"tape-{uuid.uuid4().hex[:8]}-", thread)
        end_with(self, session, thread, closes=owns_session)
        self._following = following = Following(self.model)
        self.kept_gradients = KeptGradients(self.pipeline, lambda: following.parameters)
        self._variants = Variants(self.model, following.settings, self.pipeline)
        # For each parameter and averaged buffer, the optimizer whose state the session has.
        self.optimizers: dict[str, object] = {}
        self.reads_averages = False

    @property
    def trainer_state(self) -> dict[str, Any]:
        """The newest state that the session had when it was resumed; {} if there was none."""
        return decode(self.session.trainer_state)

    @short_traceback
    def save(self, trainer_state: TrainerState) -> None:
        """Has the session keep the state, behind all that was sent. Doesn't wait.

        A durable session is resumed as of a change that carried a state. The state may have
        numbers, strings, lists, dicts and tensors, 64 KiB in all. A function that returns it is
        also possible.
        """
        self.pipeline.send(self.session.put, {}, trainer_state=self.encoded(trainer_state))

    @short_traceback
    def restore_state(self, name: str) -> dict[str, Any]:
        """Goes back to the snapshot that `session.save_state(name)` has kept: parameters,
        buffers, gradients and the optimizer's state. Puts constants of the network's programs
        again that the snapshot lacks. Returns its `trainer_state`, {} if it had none. Errors:
        those of Session.restore_state(); nothing has changed then."""
        self.kept_gradients.look_again()
        trainer_state = self.pipeline.call(self.session.restore_state, name)
        self._variants.put_again()
        return decode(trainer_state)

    def encoded(self, trainer_state: TrainerState | None) -> bytes:
        """Returns the state as bytes. Drops tapes of steps that are over, because a session
        isn't resumed as of a change that left a tape."""
        if trainer_state is None:
            return b""
        self.tapes.drop_dead()
        return encode(trainer_state)

    @short_traceback
    def zero_grad(self, set_to_none: bool = True, names: Iterable[str] | None = None) -> None:
        """Drops the gradients of the named parameters, or all gradients.

        `set_to_none=False` sets them to zeros instead; optimizers step such parameters.
        Errors: Unimplemented for some of the gradients after clip_grad_norm_().
        """
        wanted = self._following.parameters if names is None else names
        if set_to_none:
            self.kept_gradients.drop(wanted)
        else:
            self.kept_gradients.put({
                name: torch.zeros(self._following.parameters[name].shape)
                for name in self.kept_gradients.end_clip(wanted)})

    @short_traceback
    def _fetched_state(self) -> Any:
        self.follow()
        found = self.fetch(dict.fromkeys(absent.names_of_state(self.model).values()))
        self._original.expect_weights()
        return absent.saved(self.model, found)

    @short_traceback
    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True,
                        assign: bool = False) -> Any:
        """Does the same as torch's, with the model's hooks; `assign` has no effect. If it
        raises an error, no tensor on the server has changed. If the model has hooks, or modules
        that load in their own way, the present values are fetched for them."""
        result, written = self._load(state, strict)
        own = absent.tensors_of(self.model)
        self._following.settings.forgive({id(own[name]) for name in own.keys() & written})
        self._original.forgive_weights()
        self.follow()
        self.put(written)
        return result

    def _load(self, state: Mapping[str, Any], strict: bool) -> tuple[Any, dict[str, Tensor]]:
        """Makes the model load the state, and returns the result and what the model has
        written, by the session's names."""
        own = absent.names_of_state(self.model)
        read = absent.read_by_loading(self.model, state)
        if read:
            read &= self.pipeline.call(self.session.tensors).keys()
        present = self.fetch(read)
        with absent.lent(self.model, {**dict.fromkeys(own.values()), **{
                name: tensor.clone() for name, tensor in present.items()}}) as values:
            before = {name: (tensor, tensor._version) for name, tensor in values.items()}
            result = self.model.load_state_dict(state, strict)
        return result, {
            name: tensor.detach() for name, tensor in values.items()
            if tensor is not before[name][0] or tensor._version != before[name][1] or
            name in present and not torch.equal(tensor, present[name].to(tensor.dtype))}

    @short_traceback
    def averaged_state_dict(self) -> Any:
        """Fetches what state_dict() does, with the exponential moving average of each tensor
        that has one (`ema_decay` of convgrad.torch.optim) in place of the tensor."""
        self.follow()
        kept = self.pipeline.call(self.session.tensors)
        names = {name: average_name(name) if average_name(name) in kept else name
                 for name in absent.names_of_state(self.model).values()}
        found = self.fetch(names.values())
        return absent.saved(self.model, {name: found[kept] for name, kept in names.items()})

    @short_traceback
    def load_averaged_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads what averaged_state_dict() returned as the averages, so that an optimizer with
        `ema_decay` continues with them. Load the optimizer before: that drops averages.
        Errors: those of torch's load_state_dict(strict=True)."""
        _, written = self._load(state, strict=True)
        self.follow()
        averaged = {*self.averaged_buffers(), *(
            name for name, parameter in self.model.named_parameters()
            if parameter.requires_grad)}
        self.put({average_name(name): tensor for name, tensor in written.items()
                  if name in averaged})

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Makes forwards within the block use the averages in place of parameters and
        buffers. The model must be in eval mode, and torch.no_grad() active."""
        before, self.reads_averages = self.reads_averages, True
        try:
            yield
        finally:
            self.reads_averages = before

    def averaged_buffers(self) -> list[str]:
        """Returns the names of the buffers that an optimizer averages beside parameters: the
        floating ones, such as running statistics."""
        kept = set(absent.names_of_state(self.model).values())
        return [name for name, buffer in self.model.named_buffers()
                if buffer.is_floating_point() and name in kept]

    def put_new(self, model: nn.Module) -> None:
        tensors = absent.tensors_of(model)
        taken = self.session.tensors().keys() & tensors.keys()
        if taken:
            raise AlreadyExists.of(
                "session", f"'{min(taken)}', which it has already",
                "a session of its own for each network, or put=False")
        self.put({name: tensor.detach() for name, tensor in tensors.items()})
        self.kept_gradients.reset()

    @short_traceback
    def wait(self) -> None:
        """Blocks until the server has done all changes sent so far. Raises the first error."""
        self.pipeline.call(self.session.tensors)

    def run_backward(self, tape: str, gradients: dict[str, Any], inputs: list[str],
                     parameters: list[str], zero: set[str]) -> Run | None:
        """Sends a backward, and waits for it only if `inputs` names inputs.

        The server adds the parameters' gradients to the session's, unless `parameters` is
        empty. `zero` are the program's other trainable parameters, whose new gradients are
        dropped.
        """
        made = sorted(zero - self.kept_gradients.names()) if parameters and zero else []
        begin: Callable[..., Run | None] = self.pipeline.call if inputs else self.pipeline.send
        with self.kept_gradients.sending(parameters):
            found = begin(self.session.backward, tape, gradients, input_gradients=inputs,
                          leave_parameters=not parameters, retain=True)
            if made:
                self.pipeline.send(self.session.drop, *map(gradient_name, made))
        return found

    def draw_seed(self, variant: Variant) -> None:
        """Seeds the next run's dropout masks from torch's default generator.

        Does nothing if no dropout of the program is in training mode.
        """
        if variant.program.draws_masks:
            seed = torch.randint(2**63 - 1, (), device="cpu").item()
            self.pipeline.send(self.session.put, RANDOMNESS, np.array([seed, 0]))

    def clip_norm_of(self, names: Iterable[str]) -> float:
        """Returns the norm to which a step of the named parameters clips gradients; 0: none.

        Errors: Unimplemented if other parameters have gradients, because the norm includes
        them.
        """
        clip_norm = self.kept_gradients.clip_norm
        left = self.kept_gradients.names().difference(names) if clip_norm else set()
        if left:
            raise unimplemented("clip_grad_norm_", f"a step without '{min(left)}'",
                                "one optimizer for all parameters that have gradients")
        return clip_norm

    def follow(self) -> None:
        """Puts the tensors that the model has got since the last call."""
        self._following.follow(self.replace)

    def parameter(self, name: str) -> Tensor | None:
        """Returns the model's parameter, without values; None if it has none of this name."""
        return self._following.parameters.get(name)

    def drop_states(self, names: Iterable[str], but: Container[str] = ()) -> None:
        """Drops the optimizer state of the parameters, except the tensors named in `but`."""
        self._drop_beside(names, lambda key: key.endswith("#gradient") or key in but)

    def replace(self, tensors: Mapping[str, Tensor]) -> None:
        """Puts parameters and buffers. Drops gradients and optimizer state of their names."""
        if tensors:
            self.kept_gradients.end_clip(tensors)
            self.put(tensors)
            self._drop_beside(tensors, lambda key: False)
            self.kept_gradients.lose(tensors)

    def _drop_beside(self, names: Iterable[str], stays: Callable[[str], bool]) -> None:
        wanted = {f"{name}#" for name in names}
        kept = self.pipeline.call(self.session.tensors)
        dropped = [key for key in kept
                   if key[:key.find("#") + 1] in wanted and not stays(key)]
        if dropped:
            self.pipeline.call(self.session.drop, *dropped)

    def send_update(self, update: Update, state: TrainerState | None) -> None:
        encoded = self.encoded(state)
        with self.kept_gradients.sending(update=update):
            self.pipeline.send(self.session.update, update, trainer_state=encoded)

    def submit_update(self, update: Update, state: TrainerState | None,
                      ) -> Future[Updated]:
        encoded = self.encoded(state)
        with self.kept_gradients.sending(update=update):
            return self.pipeline.submit(self.session.update, update, trainer_state=encoded)

    def fetch(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Returns kept tensors by name."""
        return self.pipeline.fetch(names)

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Puts tensors under these names, and waits."""
        self.pipeline.put(tensors)
