"""Warns about changes of the model that remote() got, because the server doesn't see them."""

from __future__ import annotations

import logging
import weakref
from typing import Any

from torch import nn

_LOG = logging.getLogger("convgrad")
# For each kind of change, the call that makes it on the server.
_REMEDIES = {
    "train() or eval()": "net.train(), net.eval(), or net.model's modules",
    "requires_grad": "net.requires_grad_(), or net.model's parameters",
    "a weight": "net.load_state_dict(model.state_dict())",
}

# Modes of the modules; requires_grad and versions of the parameters.
_State = tuple[list[Any], list[Any], list[Any]]


class Original:
    """Warns once about each kind of change. Owned by one thread. Holds only weak references.

    Stops watching if the weights change after values were fetched from the server, because the
    model is then a local copy, or if a part of it was collected. look() takes about 0.1 us per
    module and parameter.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = [weakref.ref(module) for module in model.modules()]
        # Tensors that were made in inference mode have no version counter.
        self._parameters = [weakref.ref(parameter) for parameter in model.parameters()
                            if not parameter.is_inference()]
        self._seen: _State = self._now()
        self._said: set[str] = set()
        self._is_fetched = False

    def look(self) -> None:
        """Warns if the model has changed since the last look."""
        now = self._now()
        if now == self._seen or self._stop_if_copied(now):
            return
        seen, self._seen = self._seen, now
        for what, one, other in zip(_REMEDIES, now, seen):
            if one != other and what not in self._said:
                self._said.add(what)
                _LOG.warning(
                    "the model that remote() was given has changed (%s), which the network on "
                    "the server doesn't follow; use %s", what, _REMEDIES[what])

    def expect_weights(self) -> None:
        """Records that values were fetched. The next change of weights then counts as a copy of
        these values."""
        self.look()
        self._is_fetched = True

    def forgive_weights(self) -> None:
        """Ignores changes of weights until now, because values were loaded into the network."""
        now = self._now()
        if not self._stop_if_copied(now):
            self._seen = (*self._seen[:2], now[2])

    def _stop_if_copied(self, now: _State) -> bool:
        """Stops watching if the weights have changed since values were fetched."""
        is_copied = self._is_fetched and now[2] != self._seen[2]
        if is_copied:
            self._stop()
        return is_copied

    def _stop(self) -> _State:
        self._modules, self._parameters = [], []
        self._seen = [], [], []
        return self._seen

    def _now(self) -> _State:
        """Returns modes, requires_grad and versions."""
        modules: Any = [reference() for reference in self._modules]
        parameters: Any = [reference() for reference in self._parameters]
        try:
            return ([module.training for module in modules],
                    [parameter.requires_grad for parameter in parameters],
                    [parameter._version for parameter in parameters])
        except AttributeError:  # a reference returned None
            return self._stop()
