"""Tracks the gradients in a network's session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch

from convgrad.errors import unimplemented
from convgrad.networks import Update, gradient_name
from convgrad.torch.networks.pipeline import Pipeline


class KeptGradients:
    """Knows which parameters have a gradient: from the changes that were sent, and from the
    server if that isn't enough. Lends gradients to the caller, and puts back what the caller
    changes in them. Owned by one thread."""

    def __init__(self, pipeline: Pipeline, parameters: Callable[[], Iterable[str]]) -> None:
        self._pipeline = pipeline
        self._parameters = parameters
        # Valid as long as no change fails; None: unknown.
        self._names: set[str] | None = None
        self._failures = pipeline.session.failures
        # By parameter, the tensor that the caller has and the values that the server has.
        self._lent: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self.clip_norm = 0.0
        """Norm to which the next update clips all gradients; 0: no clipping."""

    def reset(self) -> None:
        """Records that no parameter has a gradient."""
        self._names = set()
        self._lent.clear()

    def look_again(self) -> None:
        """Records that the session's content was replaced."""
        self._names, self.clip_norm = None, 0.0
        self._lent.clear()

    def names(self) -> set[str]:
        """Returns the parameters that have a gradient after all changes sent so far."""
        failures = self._pipeline.session.failures
        if self._names is None or failures != self._failures:
            kept = self._pipeline.call(self._pipeline.session.tensors)
            self._names = {n for n in self._parameters() if gradient_name(n) in kept}
            self._failures = failures
        return self._names

    def lend(self, name: str) -> torch.Tensor | None:
        """Fetches the parameter's gradient; None if it has none. Returns the same tensor until
        settle() is called. Errors: those of check_unclipped()."""
        if name not in self.names():
            return None
        self.check_unclipped(name)
        if name not in self._lent:
            (gradient,) = self._pipeline.fetch([gradient_name(name)]).values()
            self._lent[name] = gradient, gradient.clone()
        return self._lent[name][0]

    def check_unclipped(self, name: str) -> None:
        """Errors: Unimplemented between clip_grad_norm_() and the step, because the server
        clips only in the step."""
        if self.clip_norm:
            raise unimplemented(f"parameters.{name}.grad", "a step that will clip it",
                                "that before clip_grad_norm_()")

    def put(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Replaces the gradients of these parameters, lends the tensors, and waits."""
        names = self.names()
        self._pipeline.put({gradient_name(name): g for name, g in gradients.items()})
        names.update(gradients)
        self._lent.update({name: (g, g.clone()) for name, g in gradients.items()})

    def settle(self) -> None:
        """Puts back what the caller has changed in lent gradients, and lends none any more.

        Call it before the server uses gradients.
        """
        changed = {gradient_name(name): gradient for name, (gradient, kept)
                   in self._lent.items() if not torch.equal(gradient, kept)}
        self._lent.clear()
        self._pipeline.put(changed)

    def clip(self, norm: float) -> None:
        """Makes the next update clip all gradients to this norm, or to a smaller one that an
        earlier clip() has set."""
        self.settle()
        self.clip_norm = min(norm, self.clip_norm or norm)

    def end_clip(self, lost: Iterable[str]) -> set[str]:
        """Ends clip() if these parameters are the only ones that have gradients, which they are
        about to lose. Returns those of them that have one.

        Errors: Unimplemented if other gradients stay, because their common norm includes these.
        """
        names = self.names()
        found = names.intersection(lost)
        if self.clip_norm and found and found != names:
            raise unimplemented("clip_grad_norm_", f"a loss of the gradient of '{min(found)}' "
                                "alone before the step", "zero_grad() of all, or before it")
        if found == names:
            self.clip_norm = 0.0
        return found

    def note(self, names: Iterable[str]) -> None:
        """Records a backward that is about to be sent.

        Errors: Unimplemented between clip_grad_norm_() and the step, because torch would clip
        only the earlier gradients.
        """
        added = set(names)
        if self.clip_norm and added:
            raise unimplemented("clip_grad_norm_", "a backward between it and the step",
                                "clip_grad_norm_() behind the last backward")
        self.settle()
        if self._names is not None:
            self._names.update(added)

    def forget(self, update: Update) -> None:
        """Records an update. The set is unknown after one that the server may skip."""
        self.clip_norm = 0.0
        if update.skip_nonfinite:
            self._names = None
        elif not update.keep_gradients and self._names is not None:
            self._names.difference_update(*(group.parameters for group in update.groups))

    def lose(self, names: Iterable[str]) -> None:
        """Records that the parameters have no gradient."""
        names = set(names)
        if self._names is not None:
            self._names.difference_update(names)
        for name in names & self._lent.keys():
            del self._lent[name]

    def drop(self, wanted: Iterable[str]) -> None:
        """Makes the server drop the gradients of the parameters, if they have any."""
        dropped = sorted(self.end_clip(wanted))
        self.lose(dropped)
        if dropped:
            self._pipeline.send(self._pipeline.session.drop, *map(gradient_name, dropped))
