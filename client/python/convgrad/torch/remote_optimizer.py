"""Defines the base class of optimizers whose parameters are on a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any

import torch

from convgrad.errors import FailedPrecondition, invalid, unimplemented
from convgrad.networks import ParameterGroup, Update, Updated, average_name
from convgrad.torch.networks.parameters import RemoteParameter
from convgrad.torch.networks.state import RemoteState
from convgrad.torch.networks.trainer_state import TrainerState
from convgrad.torch.optimizer_groups import Groups, check_range, names_of
from convgrad.tracebacks import short_traceback

Parameters = (Iterable[RemoteParameter] | Iterable[tuple[str, RemoteParameter]] |
              Iterable[dict[str, Any]])

# The server's names of torch's settings, beside the learning rate and betas.
_SETTINGS = {"eps": "epsilon", **{name: name for name in (
    "weight_decay", "momentum", "dampening", "nesterov", "maximize", "alpha", "centered")}}


class RemoteOptimizer(torch.optim.Optimizer):
    """Base class of the optimizers.

    `gradient_scale` multiplies the gradients before each step. Then `clip_grad_value` limits
    each of them, as torch.nn.utils.clip_grad_value_ does, and `clip_grad_norm` their common
    norm, as clip_grad_norm_ does; 0: no limit. With `skip_nonfinite` a step whose gradients
    aren't finite only drops them.

    With `ema_decay` above 0 the server keeps an exponential moving average of each parameter
    and floating buffer, as torch.optim.swa_utils.AveragedModel does with
    get_ema_multi_avg_fn(ema_decay). RemoteNetwork.averaged() predicts with the averages, and
    averaged_state_dict() fetches them.

    The server's state for the parameters (momentum, moments, averages) starts again;
    `resume=True` keeps the session's state, e.g. after resuming it. An earlier optimizer over
    one of the parameters can't step any more.

    step() calls the hooks that register_step_pre_hook() and register_step_post_hook() have
    registered. submit_step() and the network's train_step() refuse an optimizer that has some.

    `foreach`, `fused` and `capturable`, which say how torch computes, have no effect.
    """

    algorithm: str
    states: tuple[str, ...]
    """Names of the server's state of each parameter, as in torch's state."""

    def __init__(self, params: Parameters, defaults: dict[str, Any], *,
                 clip_grad_norm: float = 0.0, clip_grad_value: float = 0.0,
                 gradient_scale: float = 1.0, ema_decay: float = 0.0,
                 skip_nonfinite: bool = False, resume: bool = False,
                 foreach: bool | None = None, fused: bool | None = None,
                 capturable: bool = False, differentiable: bool = False) -> None:
        if differentiable:
            raise unimplemented("differentiable", differentiable, "False")
        for name in ("lr", "weight_decay", "momentum", "eps", "alpha"):
            check_range(name, defaults.get(name, 0), float("inf"))
        check_range("ema_decay", ema_decay, 1.0)
        for beta in defaults.get("betas", ()):
            check_range("betas", beta, 1.0)
        self._resumes = resume
        self._mark = object()
        self._network: RemoteState | None = None  # which handles don't keep
        self.clip_grad_norm = clip_grad_norm
        self.clip_grad_value = clip_grad_value
        self.ema_decay = ema_decay
        self.gradient_scale = gradient_scale
        self.skip_nonfinite = skip_nonfinite
        super().__init__(params, defaults)  # type: ignore[arg-type]

    @property
    def state(self) -> Any:
        """Is empty here. The server has the state; state_dict() fetches it."""
        return MappingProxyType({})

    @state.setter
    def state(self, state: Any) -> None:
        """Starts the server's state again, except averages. Takes only an empty one."""
        if state:
            raise unimplemented("optimizer.state", "an assignment of entries",
                                "load_state_dict(), or {} to start again")
        if self._network is not None:
            self._check_owner()
            names = self._names()
            self.network.drop_states(names, set(map(average_name, names)))

    def __getstate__(self) -> dict[str, Any]:
        return dict(super().__getstate__(), state={})  # type: ignore[call-overload]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = state.pop("state", {})
        super().__setstate__(state)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters of one remote network, each of them in one group."""
        if not self.param_groups:  # torch's constructor has set it
            self.param_groups = Groups()
        params = param_group["params"]
        group = {**param_group,
                 "params": [params] if isinstance(params, RemoteParameter) else list(params)}
        if group["params"] and all(isinstance(one, tuple) for one in group["params"]):
            group["param_names"], group["params"] = map(list, zip(*group["params"]))
        seen = {id(p) for other in self.param_groups for p in other["params"]}
        for parameter in group["params"]:
            if not isinstance(parameter, RemoteParameter):
                raise invalid("INVALID_ENUM", "params", type(parameter).__name__,
                              "what a remote network's parameters() gives")
            if id(parameter) in seen:
                raise invalid("DUPLICATE", "params", f"'{parameter.name}' twice", "each once")
            seen.add(id(parameter))
            self._network = self._network or parameter.network
            if parameter.network is not self._network:
                raise invalid("INVALID_ENUM", "params", "parameters of two networks",
                              "an optimizer for each network")
        for name, value in self.defaults.items():
            group.setdefault(name, value)
        self._check_group(group, "params")
        names = names_of(group)
        network = self.network
        # A later group leaves the averages of buffers to the first one.
        buffers = [] if self.param_groups else network.averaged_buffers()
        if not self._resumes:
            network.drop_states([*names, *buffers])
        owned = [*names, *buffers] if self.ema_decay else names
        network.optimizers.update(dict.fromkeys(owned, self._mark))
        self.param_groups.append(group)

    def step(self, closure: Callable[[], Any] | None = None, *,
             trainer_state: TrainerState | None = None) -> Any:
        """Steps all parameters that have a gradient; doesn't wait for the server.

        Gradients stay until zero_grad(), as in torch. `trainer_state` takes effect with the
        step: see the network's save().
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._send_step(trainer_state)
        return loss

    @short_traceback
    def _send_step(self, trainer_state: TrainerState | None) -> None:
        self.network.send_update(self.update(), trainer_state)

    @short_traceback
    def submit_step(self, *, trainer_state: TrainerState | None = None,
                    ) -> Future[Updated]:
        """Does the same as step(); the future's result has the gradients' norm and whether the
        step was skipped. Errors: Unimplemented if the optimizer has hooks of its steps."""
        self.check_step_hooks("submit_step")
        return self.network.submit_update(self.update(), trainer_state)

    def check_step_hooks(self, call: str) -> None:
        """Raises Unimplemented if step() would call hooks, which `call` couldn't do."""
        # `torch.optim` deletes its attribute `optimizer`.
        of_all = sys.modules[torch.optim.Optimizer.__module__]
        if any((getattr(of_all, f"_global_optimizer_{kind}_hooks", None)
                or self._hooks(f"step_{kind}")) for kind in ("pre", "post")):
            raise unimplemented(call, "an optimizer with hooks of its steps",
                                "step(), which calls them")

    def update(self, *, keep_gradients: bool = True) -> Update:
        """Returns the step for the session.

        Errors: FailedPrecondition if a later optimizer owns the parameters.
        """
        self.network.follow()
        self._check_owner()
        for group in self.param_groups:
            self._check_group(group, "param_groups")
        self.network.kept_gradients.settle()
        asked = self.network.clip_norm_of(self._names())
        clip_norms = [norm for norm in (asked, self.clip_grad_norm) if norm]
        self._opt_called = True  # torch's schedulers warn of steps before the optimizer's
        return Update(
            self.algorithm, [self.settings_of(group) for group in self.param_groups],
            gradient_scale=self.gradient_scale, clip_norm=min(clip_norms, default=0.0),
            skip_nonfinite=self.skip_nonfinite, keep_gradients=keep_gradients,
            clip_value=self.clip_grad_value, ema_decay=self.ema_decay,
            averaged=self._averaged_buffers() if self.ema_decay else ())

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients, so that the parameters aren't stepped. `set_to_none=False` sets
        them to zeros instead; zeros are stepped."""
        self.network.zero_grad(set_to_none, self._names())

    @property
    def network(self) -> RemoteState:
        assert self._network is not None  # torch's constructor refuses no parameters
        return self._network

    def state_dict(self) -> dict[str, Any]:
        """Fetches the state that torch's optimizer of the same name would have."""
        for hook in self._hooks("state_dict_pre"):
            hook(self)
        self._check_owner()
        handles = [p for group in self.param_groups for p in group["params"]]
        kept = self.network.session.tensors()
        wanted = {(i, key): f"{p.name}#{key}" for i, p in enumerate(handles) if p.is_current
                  for key in self.states if f"{p.name}#{key}" in kept}
        found = self.network.fetch(wanted.values())
        state: dict[int, dict[str, Any]] = {}
        for (i, key), name in wanted.items():
            state.setdefault(i, {})[key] = (
                found[name].to(torch.float32) if key == "step" else found[name])
        numbers = iter(range(len(handles)))
        groups = [{**group, "params": [next(numbers) for _ in group["params"]]}
                  for group in self.param_groups]
        whole: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._hooks("state_dict_post"):
            whole = _either(hook(self, whole), whole)
        return whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state_dict of this optimizer or of torch's of the same name. Missing state
        starts again."""
        state_dict = dict(state_dict)
        for hook in self._hooks("load_state_dict_pre"):
            state_dict = _either(hook(self, state_dict), state_dict)
        self._check_owner()
        groups = state_dict["param_groups"]
        found = [len(group["params"]) for group in groups]
        expected = [len(group["params"]) for group in self.param_groups]
        if found != expected:
            raise invalid("SHAPE_MISMATCH", "state_dict.param_groups",
                          f"groups of {found} parameters", expected)
        for group in groups:
            self._check_group(group, "state_dict.param_groups")
        handles = {i: parameter for group, own in zip(groups, self.param_groups)
                   for i, parameter in zip(group["params"], own["params"])}
        tensors = {}
        for i, entries in state_dict["state"].items():
            for key, entry in entries.items():
                if entry is None:
                    continue
                if key not in self.states:
                    raise unimplemented(f"state_dict.state[{i}]", key, ", ".join(self.states))
                value = torch.as_tensor(entry)
                if handles[i].is_current:
                    tensors[f"{handles[i].name}#{key}"] = value.to(
                        torch.int64 if key == "step" else torch.float32)
        self.network.put(tensors)
        self.network.drop_states([p.name for p in handles.values() if p.is_current], tensors)
        for group, own in zip(groups, self.param_groups):
            own.update({key: value for key, value in group.items() if key != "params"})
        for hook in self._hooks("load_state_dict_post"):
            hook(self)

    def _names(self) -> list[str]:
        return [name for group in self.param_groups for name in names_of(group)]

    def _hooks(self, kind: str) -> list[Any]:
        """Returns the hooks of this kind, which torch's register_...() keep."""
        return list(getattr(self, f"_optimizer_{kind}_hooks").values())

    def settings_of(self, group: dict[str, Any]) -> ParameterGroup:
        """Returns the group's names and settings for the server."""
        settings = {ours: group[theirs] for theirs, ours in _SETTINGS.items()
                    if theirs in self.defaults}
        if "betas" in self.defaults:
            settings["beta1"], settings["beta2"] = group["betas"]
        return ParameterGroup(names_of(group), float(group["lr"]), **settings)

    def _check_group(self, group: dict[str, Any], field: str) -> None:
        """Raises Unimplemented for torch's settings that would have no effect."""
        if group.get("amsgrad"):
            raise unimplemented(f"{field}.amsgrad", group["amsgrad"], "False")
        decouples = group.get("decoupled_weight_decay")
        if decouples is not None and decouples != (self.algorithm == "adamw"):
            raise unimplemented(f"{field}.decoupled_weight_decay", decouples,
                                "AdamW where it is True, Adam where it is False")

    def _averaged_buffers(self) -> list[str]:
        """Excludes buffers that a later optimizer averages, so that one of them does it."""
        return [name for name in self.network.averaged_buffers()
                if self.network.optimizers.get(name, self._mark) is self._mark]

    def _check_owner(self) -> None:
        for name in self._names():
            if self.network.optimizers.get(name) is not self._mark:
                raise FailedPrecondition.of("optimizer", f"a later optimizer for '{name}'",
                                            "steps by that one, which began its state anew")


def _either(result: dict[str, Any] | None, given: dict[str, Any]) -> dict[str, Any]:
    """Returns what a hook has returned, or what it was given if it has returned nothing."""
    return given if result is None else result
