"""Tracks which parameters have a gradient in a network's session."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from convgrad.errors import unimplemented
from convgrad.networks import Update, gradient_name
from convgrad.torch.networks.pipeline import Pipeline


class KeptGradients:
    """Derives the set from the changes that were sent, and asks the server if that isn't
    enough. Owned by one thread."""

    def __init__(self, pipeline: Pipeline, parameters: Callable[[], Iterable[str]]) -> None:
        self._pipeline = pipeline
        self._parameters = parameters
        # Valid as long as no change fails; None: unknown.
        self._names: set[str] | None = None
        self._failures = pipeline.session.failures
        self.clip_norm = 0.0
        """Norm to which the next update clips all gradients; 0: no clipping."""

    def reset(self) -> None:
        """Records that no parameter has a gradient."""
        self._names = set()

    def look_again(self) -> None:
        """Records that the session's content was replaced."""
        self._names, self.clip_norm = None, 0.0

    def names(self) -> set[str]:
        """Returns the parameters that have a gradient after all changes sent so far."""
        failures = self._pipeline.session.failures
        if self._names is None or failures != self._failures:
            kept = self._pipeline.call(self._pipeline.session.tensors)
            self._names = {n for n in self._parameters() if gradient_name(n) in kept}
            self._failures = failures
        return self._names

    def note(self, names: Iterable[str]) -> None:
        """Records a backward that is about to be sent.

        Errors: Unimplemented between clip_grad_norm_() and the step, because torch would clip
        only the earlier gradients.
        """
        added = set(names)
        if self.clip_norm and added:
            raise unimplemented("clip_grad_norm_", "a backward between it and the step",
                                "clip_grad_norm_() behind the last backward")
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
        if self._names is not None:
            self._names.difference_update(names)

    def drop(self, wanted: Iterable[str]) -> None:
        """Makes the server drop the gradients of the parameters, if they have any."""
        self.clip_norm = 0.0
        names = self.names()
        dropped = sorted(names & set(wanted))
        names.difference_update(dropped)
        if dropped:
            self._pipeline.send(self._pipeline.session.drop, *map(gradient_name, dropped))
