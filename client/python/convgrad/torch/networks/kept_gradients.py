"""Which parameters' gradients a network's session has, as far as that is known here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from convgrad.errors import unimplemented
from convgrad.networks import Update, gradient_name
from convgrad.torch.networks.pipeline import Pipeline


class KeptGradients:
    """Follows what is sent, and asks the session where that doesn't tell. One thread's."""

    def __init__(self, pipeline: Pipeline, parameters: Callable[[], Iterable[str]]) -> None:
        self._pipeline = pipeline
        self._parameters = parameters
        # As long as no change fails; None: that isn't known.
        self._names: set[str] | None = None
        self._failures = pipeline.session.failures
        self.clip_norm = 0.0
        """What the next update brings their norm down to; 0: nothing."""

    def reset(self) -> None:
        """Takes note that there are none."""
        self._names = set()

    def names(self) -> set[str]:
        """Returns the parameters that have a gradient behind what was sent."""
        failures = self._pipeline.session.failures
        if self._names is None or failures != self._failures:
            kept = self._pipeline.call(self._pipeline.session.tensors)
            self._names = {n for n in self._parameters() if gradient_name(n) in kept}
            self._failures = failures
        return self._names

    def note(self, names: Iterable[str]) -> None:
        """Follows a backward that is about to be sent.

        Errors: Unimplemented between clip_grad_norm_() and the step, where torch clips
        what was there before alone.
        """
        added = set(names)
        if self.clip_norm and added:
            raise unimplemented("clip_grad_norm_", "a backward between it and the step",
                                "clip_grad_norm_() behind the last backward")
        if self._names is not None:
            self._names.update(added)

    def forget(self, update: Update) -> None:
        """Follows an update; one that may be skipped drops them."""
        self.clip_norm = 0.0
        if update.skip_nonfinite:
            self._names = None
        elif not update.keep_gradients and self._names is not None:
            self._names.difference_update(*(group.parameters for group in update.groups))

    def lose(self, names: Iterable[str]) -> None:
        """Takes note that the parameters have none."""
        if self._names is not None:
            self._names.difference_update(names)

    def drop(self, wanted: Iterable[str]) -> None:
        """Sends that those of the parameters which have a gradient have none."""
        self.clip_norm = 0.0
        names = self.names()
        dropped = sorted(names & set(wanted))
        names.difference_update(dropped)
        if dropped:
            self._pipeline.send(self._pipeline.session.drop, *map(gradient_name, dropped))
