"""Tests the conversion of PyTorch models to programs: their steps, and refusals."""

import collections
import gc
import tracemalloc
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from small_networks import NETWORKS, SHAPE, Residual, make
from torch import nn
from torch.nn.utils import parametrize

import convgrad
from convgrad.torch.networks.forwards.exporting import Output, shapes_of
from convgrad.torch.networks.importer import Importer
from convgrad.torch.networks.importing import Loss, _sources_of, import_model
from convgrad.torch.networks.tracing import check_model

IMAGES = torch.zeros(2, 3, 8, 8)


def import_(model, inputs=("x",), constants=None, loss=None, shape=None):
    check_model(model)
    if shape is None and isinstance(model, nn.Sequential) and isinstance(
            model[0], (nn.Linear, nn.BatchNorm1d)):
        shape = (2, getattr(model[0], "in_features", 4))
    shapes = shapes_of({name: torch.empty(shape or IMAGES.shape) for name in inputs})
    return import_model(model, shapes, constants or {}, loss)


def steps_of(imported):
    return [(step.result, step.operator, *step.operands)
            for step in imported.program.message.steps]


def attributes_of(step):
    found = {}
    for attribute in step.attributes:
        kind = attribute.WhichOneof("value")
        value = getattr(attribute, kind)
        found[attribute.name] = (
            list(value.values) if kind in ("integers", "numbers") else value)
    return found


class Module(nn.Module):
    """Makes a module from a function of the module and its inputs, and submodules by name."""

    def __init__(self, function, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def test_a_residual_block():
    imported = import_(Residual(4, 8, 2).eval(), shape=(2, 4, 8, 8))
    assert steps_of(imported) == [
        ("conv1", "conv", "x", "conv1.weight", ""),
        ("bn1", "batch_norm", "conv1", "bn1.weight", "bn1.bias", "bn1.running_mean",
         "bn1.running_var", ""),
        ("relu", "relu", "bn1"),
        ("conv2", "conv", "relu", "conv2.weight", ""),
        ("bn2", "batch_norm", "conv2", "bn2.weight", "bn2.bias", "bn2.running_mean",
         "bn2.running_var", ""),
        ("downsample_0", "conv", "x", "downsample.0.weight", ""),
        ("downsample_1", "batch_norm", "downsample_0", "downsample.1.weight",
         "downsample.1.bias", "downsample.1.running_mean", "downsample.1.running_var", ""),
        ("add", "add", "bn2", "downsample_1"),
        ("relu_2", "relu", "add")]
    message = imported.program.message
    assert attributes_of(message.steps[0]) == {
        "stride": [2, 2], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
    assert list(message.outputs) == ["relu_2"] and imported.returned == Output(0)
    assert imported.inputs == ("x",) and len(imported.trainable) == 9
    fixed = {p.name for p in message.parameters if p.fixed}
    assert fixed == {f"{bn}.{s}" for bn in ("bn1", "bn2", "downsample.1")
                     for s in ("running_mean", "running_var")}


@pytest.mark.parametrize("kind", NETWORKS)
def test_networks_of_each_kind(kind):
    model = make(kind)
    count = collections.Counter(
        step.operator for step in import_(model, shape=SHAPE).program.message.steps)
    modules = collections.Counter(type(module).__name__ for module in model.modules())
    assert count["conv"] == modules["Conv2d"] and count["batch_norm"] == modules["BatchNorm2d"]
    assert set(import_(model, shape=SHAPE).trainable) == set(dict(model.named_parameters()))


def test_modes_of_modules():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.25), nn.BatchNorm1d(
        4, momentum=None, eps=0.1), nn.BatchNorm1d(4, affine=False, track_running_stats=False))
    norms = [step for step in import_(model, ("input",)).program.message.steps]
    assert [step.operator for step in norms] == [
        "batch_norm", "dropout", "batch_norm", "batch_norm"]
    assert attributes_of(norms[0])["training"] is True
    assert norms[0].operands[-1] == "0.num_batches_tracked"
    assert attributes_of(norms[1]) == {"p": 0.25, "training": True}
    assert attributes_of(norms[2]) == {"training": True, "momentum": "none", "eps": 0.1}
    assert list(norms[3].operands) == ["_2", "", "", "", "", ""]
    model[0].eval()
    model[1].eval()
    steps = import_(model, ("input",)).program.message.steps
    assert [step.operator for step in steps] == ["batch_norm"] * 3
    assert attributes_of(steps[0])["training"] is False and not steps[0].operands[-1]
    # Without running statistics, eval mode also uses the batch's statistics.
    assert attributes_of(import_(model.eval(), ("input",)).program.message.steps[2])["training"]


def test_requires_grad_is_trainable():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    assert import_(model, ("input",)).trainable == ("1.weight", "1.bias")


def test_tied_weights_and_reused_modules():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4, bias=False))
    model[2].weight = model[0].weight
    model.add_module("3", model[0])
    assert [step[1:] for step in steps_of(import_(model, ("input",)))] == [
        ("linear", "input", "0.weight", "0.bias"), ("relu", "_0"),
        ("linear", "_1", "0.weight", ""), ("linear", "_2", "0.weight", "0.bias")]


def test_what_is_changed_in_place_is_seen_by_all():
    def forward(self, x):
        y = self.conv(x)
        z = y
        F.relu(y, inplace=True)
        y += x
        return z * torch.sigmoid(y)

    model = Module(forward, conv=nn.Conv2d(3, 3, 1))
    assert steps_of(import_(model))[1:] == [
        ("relu", "relu", "conv"), ("add", "add", "relu", "x"), ("sigmoid", "sigmoid", "add"),
        ("mul", "mul", "add", "sigmoid")]
    for relu in (lambda y: y.relu_(), lambda y: F.relu(y, True), nn.ReLU(inplace=True)):
        model = Module(lambda self, x: (self.conv(x), self.relu)[0], conv=nn.Conv2d(3, 3, 1))
        model.function = lambda self, x, relu=relu: (lambda y: relu(y) + y)(self.conv(x))
        if isinstance(relu, nn.Module):
            model.relu = relu
        assert steps_of(import_(model))[-1][2:] == (steps_of(import_(model))[-2][0],) * 2


def test_a_view_of_what_was_changed_in_place():
    def forward(self, x):
        y = self.conv(x)
        z = y.flatten(1)
        y.relu_()
        return z

    with pytest.raises(convgrad.Unimplemented, match="a view of a tensor changed in place"):
        import_(Module(forward, conv=nn.Conv2d(3, 3, 1)))

    def copying(self, x):
        y = self.conv(x)
        z = y.clone()
        y.relu_()
        return z + y

    assert steps_of(import_(Module(copying, conv=nn.Conv2d(3, 3, 1))))[-1][2:] == (
        "conv", "relu")


class Pair(NamedTuple):
    one: torch.Tensor
    other: torch.Tensor


@pytest.mark.parametrize("returned, expected", [
    (lambda a, b: (a, b), (Output(0), Output(1))),
    (lambda a, b: [b, b], [Output(0), Output(0)]),
    (lambda a, b: {"a": a, "none": None, "n": [3, (b,)]},
     {"a": Output(0), "none": None, "n": [3, (Output(1),)]}),
    (Pair, Pair(Output(0), Output(1)))])
def test_what_a_forward_returns(returned, expected):
    model = Module(lambda self, x: returned(torch.relu(x), torch.sigmoid(x)))
    found = import_(model).returned
    assert found == expected and type(found).__name__.endswith(type(expected).__name__)


def test_what_outputs_of_a_deep_network_depend_on():
    program = convgrad.Program()
    y = program.input("x")
    for i in range(3000):
        y = program.step("mul", y, program.parameter(f"w{i}", (1, 1)))
    program.output("mul_2", program.step("add", program.step("detach", "mul_9"), "mul_2"), y)
    tracemalloc.start()
    found = _sources_of(program.message)
    assert tracemalloc.get_traced_memory()[1] < 2e7  # a set for each step takes ten times more
    tracemalloc.stop()
    of_two = {"x", "w0", "w1", "mul_2"}
    assert found == {"mul_2": of_two, "add": {*of_two, "add"},
                     "mul_3000": {*of_two, *(f"w{i}" for i in range(2, 3000)), "mul_3000"}}


def test_what_no_output_needs_is_left_out():
    model = Module(lambda self, x: (self.used(x), self.unused(x))[0],
                   used=nn.Conv2d(3, 3, 1), unused=nn.Conv2d(3, 3, 1))
    imported = import_(model)
    assert len(imported.program.message.steps) == 1
    assert imported.trainable == ("used.weight", "used.bias")


@pytest.mark.parametrize("flatten", [
    lambda x: x.view(x.size(0), -1), lambda x: x.reshape(x.shape[0], -1),
    lambda x: x.view(x.size()[0], 12), lambda x: x.view(-1, 12), lambda x: x.flatten(1),
    lambda x: torch.flatten(x, start_dim=1), lambda x: x.contiguous().view((x.size(0), -1))])
def test_ways_to_flatten(flatten):
    model = Module(lambda self, x: self.fc(flatten(x)), fc=nn.Linear(12, 2))
    steps = steps_of(import_(model, shape=(2, 3, 2, 2)))
    assert [step[1] for step in steps] == ["flatten", "linear"] and steps[0][2] == "x"


def test_the_broadcast_operand_comes_second():
    def forward(self, x):
        scale = torch.sigmoid(self.conv(F.adaptive_avg_pool2d(x, 1)))
        return scale * torch.relu(x)

    steps = steps_of(import_(Module(forward, conv=nn.Conv2d(3, 3, 1))))
    assert steps[-1] == ("mul", "mul", "relu", "sigmoid")


def test_operators_attributes():
    def forward(self, x):
        x = F.leaky_relu(F.conv2d(x, self.conv.weight, None, 1, "same"), 0.2)
        x = F.max_pool2d(x, 2, padding=1, ceil_mode=True)
        x = F.avg_pool2d(x, (2, 1), divisor_override=3)
        x = F.interpolate(x, size=(7, 5), mode="bilinear", align_corners=True)
        return F.dropout(F.interpolate(x, scale_factor=2), 0.3, self.training)

    steps = import_(Module(forward, conv=nn.Conv2d(3, 3, 3))).program.message.steps
    found = {step.operator: attributes_of(step) for step in reversed(list(steps))}
    assert found["conv"]["padding"] == "same" and found["leaky_relu"] == {
        "negative_slope": 0.2}
    assert found["max_pool"] == {"kernel_size": [2, 2], "padding": [1, 1], "dilation": [1, 1],
                                 "ceil_mode": True}
    assert found["avg_pool"] == {"kernel_size": [2, 1], "padding": [0, 0], "ceil_mode": False,
                                 "count_include_pad": True, "divisor_override": 3}
    assert found["upsample"] == {"size": [7, 5], "mode": "bilinear", "align_corners": True}
    assert attributes_of(steps[5]) == {"scale_factor": [2.0, 2.0], "mode": "nearest",
                                       "align_corners": False}
    assert found["dropout"] == {"p": 0.3, "training": True}


def test_a_loss_at_the_end():
    loss = Loss("cross_entropy", (("label_smoothing", 0.1),), is_index=True)
    imported = import_(nn.Sequential(nn.Linear(4, 2)), ("input",), loss=loss)
    message = imported.program.message
    assert steps_of(imported)[-1] == ("loss", "cross_entropy", "_0", "target")
    assert list(message.outputs) == ["loss", "_0"] and message.inputs[1].is_index
    with pytest.raises(convgrad.Unimplemented, match="several outputs"):
        import_(Module(lambda self, x: (torch.relu(x), torch.sigmoid(x))), loss=loss)


def test_arguments_that_are_no_tensors():
    class Optional(nn.Module):
        def forward(self, x, mask=None, scale: bool = False, y=None):
            x = torch.relu(x) if mask is None else x * mask
            return torch.sigmoid(x) if scale else x

    plain = import_(Optional(), ("x",), {"mask": None, "scale": False, "y": None})
    assert [step[1] for step in steps_of(plain)] == ["relu"]
    masked = import_(Optional(), ("x", "mask"), {"scale": True, "y": None})
    assert [step[1] for step in steps_of(masked)] == ["mul", "sigmoid"]


class Depends(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class OfSums(nn.Conv2d):
    """A derived class, whose own forward is imported."""

    def forward(self, x):
        return F.conv2d(x.cummax(1)[0], self.weight, self.bias)


def hooked(module):
    module[0].register_forward_hook(lambda *_: None)
    return module


def parametrized():
    model = nn.Sequential(nn.Linear(2, 2))
    parametrize.register_parametrization(model[0], "weight", nn.Identity())
    return model


@pytest.mark.parametrize("model, words", [
    (lambda: nn.Sequential(nn.Linear(2, 2), nn.RReLU()),
     r"1 \(RReLU\): found aten\.rrelu, "),
    (lambda: nn.Sequential(nn.Sequential(nn.FractionalMaxPool2d(2, 3))),
     r"0\.0 \(FractionalMaxPool2d\).*aten\.fractional_max_pool2d"),
    (lambda: nn.Sequential(Depends()), r"0 \(Depends\).*control flow"),
    (lambda: nn.Sequential(OfSums(3, 3, 3)), r"0 \(OfSums\).*cummax"),
    (lambda: Module(lambda self, x: x * torch.zeros(8).short()),
     r"a constant of \(8\), torch.int16"),
    (lambda: Module(lambda self, x: x * torch.zeros(8).copy_(self.c.bias), c=nn.Linear(2, 8)),
     r"aten\.copy_ of a constant of \(8\)"),
    (lambda: Module(lambda self, x: (torch.relu(x), torch.zeros(2, 2))),
     r"a constant of \(2, 2\), torch.float32 among what it returns"),
    (lambda: Module(lambda self, x: x.div(2, rounding_mode="floor")), r"aten\.div, "),
    (lambda: Module(lambda self, x: x.sum((2, 3), dtype=torch.float64)),
     r"sum in torch\.float64"),
    (lambda: Module(lambda self, x: F.conv_transpose2d(x, self.c.weight * 2),
                    c=nn.Conv2d(2, 3, 1)),
     "conv_transpose with a result, mul_2, expected a parameter as operand 1"),
    (lambda: Module(lambda self, x: F.conv2d(x, self.t), t=torch.zeros(2, 3, 1, 1)),
     "neither parameter nor buffer"),
    (lambda: Module(lambda self, x: x), "an input, x, among what it returns"),
    (lambda: Module(lambda self, x: F.pad(x, (0, 0, 0, 0, 0, 0, 1, 1))),
     r"pad of \(2, 3, 8, 8\) by .*other axes than the first one"),
    (lambda: nn.Sequential(nn.MaxPool2d(2, return_indices=True)), "max_pool2d_with_indices"),
    (lambda: hooked(nn.Sequential(nn.Linear(2, 2))), r"0 \(Linear\): found a hook"),
    (lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(2, 2))),
     r"0 \(Linear\): found a hook of .*expected torch\.nn\.utils\.parametrizations\.weight_n"),
    (parametrized, r"0 \(ParametrizedLinear\): found a parametrization"),
    (lambda: nn.Sequential(nn.LazyLinear(3)), r"0 \(LazyLinear\): found parameters without"),
    (lambda: nn.Sequential(torch.jit.script(nn.Linear(2, 2))), "TorchScript")])
def test_what_is_refused(model, words):
    model = model()
    inputs = ("input",) if type(model) is nn.Sequential else ("x",)
    with pytest.raises(convgrad.Unimplemented, match=words):
        import_(model, inputs)


@pytest.mark.parametrize("model, words", [
    (lambda: nn.Linear(2, 2).double(), "model.weight.dtype: found torch.float64"),
    (lambda: nn.Linear(2, 2).bfloat16(), "model.weight.dtype: found torch.bfloat16"),
    (lambda: torch.relu, "found builtin_function_or_method, expected a torch.nn.Module")])
def test_what_is_invalid(model, words):
    with pytest.raises(convgrad.InvalidArgument, match=words):
        check_model(model())


def test_memory_of_an_import_needs_no_collector():
    """An importer holds the exported model."""
    gc.collect()
    gc.disable()
    try:
        import_(Residual(4, 8, 2), shape=(2, 4, 8, 8))
        assert not [one for one in gc.get_objects() if type(one) is Importer]
    finally:
        gc.enable()
