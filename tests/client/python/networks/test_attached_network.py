"""Tests networks that predict with weights that another process trains."""

import itertools
import multiprocessing
import threading

import pytest
import torch
import torch.nn.functional as F
from server_process import ServerProcess
from small_networks import UNet
from torch import nn

import convgrad
from convgrad.torch import optim, remote

IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(2, (2, 16, 16), generator=torch.Generator().manual_seed(1))


class Normed(nn.Module):
    """Has statistics, dropout and a branch on the mode: eval mode differs from train mode."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Conv2d(4, 2, 1)
        self.out2 = self.out  # tied

    def forward(self, x, twice=False):
        y = self.out2(self.drop(F.relu(self.norm(self.conv(x)))))
        return y + y if twice and not self.training else y


class Asking(nn.Module):
    def forward(self, x):
        return torch.relu(x) if torch.is_grad_enabled() else torch.sigmoid(x)


def model_of(kind=Normed, seed=0):
    torch.manual_seed(seed)
    return kind()


@pytest.fixture
def trainer(make_remote):
    return make_remote(model_of())


@pytest.fixture
def attached(server, trainer):
    with convgrad.Client(server.address, timeout=60) as other:
        yield other.attach(trainer.session.id)


def own_prediction(net):
    """Returns the prediction of the trainer's process, without a tape, as attached networks do.
    """
    with torch.no_grad():
        return net.eval()(IMAGES)


def step(net, optimizer):
    return net.train_step(IMAGES, LABELS, optimizer=optimizer)


@pytest.mark.parametrize("kind", [Normed, UNet])
def test_predictions_are_the_trainers(client, make_remote, kind):
    net = make_remote(model_of(kind))
    net.prepare(IMAGES)
    predictor = remote(model_of(kind, seed=5), client.attach(net.session.id))
    optimizer = optim.Adam(net.parameters(), lr=0.01)
    seen = []
    for _ in range(3):
        step(net, optimizer)
        found = predictor(IMAGES)
        assert torch.equal(found, own_prediction(net))
        assert not found.requires_grad and not any(torch.equal(found, one) for one in seen)
        seen.append(found)
        net.train()
    assert step(net, optimizer)  # the modes haven't changed


def test_no_weights_travel(make_remote):
    server = ServerProcess("--metrics_listen=127.0.0.1:0")
    with convgrad.Client(server.address) as client, \
            remote(nn.Conv2d(3, 512, 3, padding=1), client) as net:
        net.prepare(IMAGES)
        predictor = remote(nn.Conv2d(3, 512, 3, padding=1), client.attach(net.session.id))
        before = server.received_bytes()
        predictor(IMAGES[:1])
        assert server.received_bytes() - before == IMAGES[:1].numel() * 4
    server.kill()


def test_what_the_trainer_freezes_or_has_in_which_mode_changes_no_program(trainer, attached):
    trainer.model.conv.requires_grad_(False)
    trainer.model.norm.eval()
    trainer.prepare(IMAGES)
    assert not trainer.model.conv.weight.requires_grad and trainer.training
    assert not trainer.model.norm.training
    predictor = remote(model_of(seed=3), attached)
    assert torch.equal(predictor(IMAGES), own_prediction(trainer))


def test_what_is_not_prepared(trainer, attached):
    predictor = remote(model_of(), attached)
    with pytest.raises(convgrad.FailedPrecondition, match=r"expected net\.prepare\(\*inputs\)"):
        predictor(IMAGES)
    trainer.prepare(IMAGES)
    predictor(IMAGES)
    with pytest.raises(convgrad.FailedPrecondition, match="prepare"):
        predictor(IMAGES, twice=True)
    trainer.prepare(IMAGES, twice=True)
    assert torch.equal(predictor(IMAGES, twice=True), 2 * predictor(IMAGES))
    with pytest.raises(convgrad.FailedPrecondition, match="prepare"):
        remote(model_of(UNet), attached)(IMAGES)


@pytest.mark.parametrize("name, use", [
    ("train", lambda net: net.model.drop.train() and net(IMAGES)),
    ("requires_grad_", lambda net: net.requires_grad_()),
    ("parameters", lambda net: optim.SGD(net.parameters(), lr=0.1)),
    ("named_parameters", lambda net: list(net.named_parameters())),
    ("load_state_dict", lambda net: net.load_state_dict({})),
    ("forward_backward", lambda net: net.forward_backward(IMAGES, LABELS)),
    ("submit_forward_backward", lambda net: net.submit_forward_backward(IMAGES, LABELS)),
    ("train_step", lambda net: net.train_step(IMAGES, LABELS, optimizer=None)),
    ("submit_train_step", lambda net: net.submit_train_step(IMAGES, LABELS, optimizer=None)),
    ("gradients", lambda net: net.gradients()),
    ("zero_grad", lambda net: net.zero_grad()),
    ("clip_grad_norm_", lambda net: net.clip_grad_norm_(1.0)),
    ("put", lambda net: net.put({})),
    ("prepare", lambda net: net.prepare(IMAGES)),
    ("x", lambda net: net(IMAGES.clone().requires_grad_())),
])
def test_what_trains_is_refused_by_name(trainer, attached, name, use):
    trainer.prepare(IMAGES)
    number = trainer.session.number
    net = remote(model_of(), attached)
    with pytest.raises(convgrad.FailedPrecondition, match=f"^FAILED_PRECONDITION: {name}: "):
        use(net)
    trainer.wait()
    assert trainer.session.number == number


def test_an_input_that_requires_a_gradient_without_grad_mode(trainer, attached):
    trainer.prepare(IMAGES)
    with torch.no_grad():
        remote(model_of(), attached)(IMAGES.clone().requires_grad_())


def test_another_module_than_the_session_has(trainer, attached):
    trainer.prepare(IMAGES)
    net = remote(model_of(), attached)
    net.model.out = nn.Conv2d(4, 2, 1)
    for _ in range(2):
        with pytest.raises(convgrad.Unimplemented, match="other modules or tensors"):
            net(IMAGES)


def test_as_a_part_of_another_module(trainer, attached):
    trainer.prepare(IMAGES)
    whole = nn.Sequential(remote(model_of(), attached), nn.Conv2d(2, 1, 1)).eval()
    assert [name for name, _ in whole.named_parameters()] == ["1.weight", "1.bias"]
    whole(IMAGES).sum().backward()
    assert whole[1].weight.grad is not None
    before = whole[0].state_dict()
    whole.train()
    whole.load_state_dict(whole.state_dict())
    assert whole[1].training and not whole[0].model.training
    assert all(torch.equal(tensor, before[name])
               for name, tensor in whole[0].state_dict().items())


def test_a_state_is_all_of_one_change(trainer, attached):
    """The trainer gives both tensors the same number, in one change."""
    for name in ("out.weight", "out.bias"):
        trainer.session.put(name, torch.zeros(trainer.state_dict()[name].shape).numpy())
    net = remote(model_of(), attached)
    over = threading.Event()

    def train():
        for i in itertools.count():
            if over.is_set():
                break
            trainer.session.put({
                name: torch.full(shape, float(i)).numpy()
                for name, shape in (("out.weight", (2, 4, 1, 1)), ("out.bias", (2,)))})

    thread = threading.Thread(target=train)
    thread.start()
    values = set()
    try:
        while len(values) < 20:
            state = net.state_dict()
            assert state.keys() == trainer.model.state_dict().keys()
            assert (state["out.weight"] == state["out.bias"][0]).all()
            values.add(float(state["out.bias"][0]))
    finally:
        over.set()
        thread.join()


def predict(address, session_id, pipe):
    """Runs in another process: answers each message with the newest prediction."""
    with convgrad.Client(address, timeout=60) as client:
        net = remote(model_of(UNet, seed=9), client.attach(session_id))
        while pipe.recv():
            pipe.send(net(IMAGES).numpy())


def test_another_process_predicts_while_this_one_trains(server, make_remote):
    net = make_remote(model_of(UNet))
    net.prepare(IMAGES)
    optimizer = optim.Adam(net.parameters(), lr=0.01)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    other = multiprocessing.get_context("spawn").Process(
        target=predict, args=(server.address, net.session.id, theirs))
    other.start()
    theirs.close()  # so that the pipe ends with the other process
    for _ in range(5):
        step(net, optimizer)
        ours.send(True)
        assert torch.equal(torch.from_numpy(ours.recv()), own_prediction(net))
        net.train()
    ours.send(False)
    other.join()
    assert other.exitcode == 0


def test_a_thread_predicts_while_another_trains_and_draws_random_numbers(trainer, attached):
    trainer.prepare(IMAGES)
    over = threading.Event()

    def train():
        optimizer = optim.SGD(trainer.parameters(), lr=0.01)
        while not over.is_set():
            torch.randint(2, (4,))
            trainer.submit_train_step(IMAGES, LABELS, optimizer=optimizer)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        found = [remote(model_of(), attached)(IMAGES) for _ in range(10)]
    finally:
        over.set()
        thread.join()
    assert len({one.numpy().tobytes() for one in found}) > 1


def test_who_resumes_the_training_needs_not_prepare_again(client):
    session = client.session()
    remote(model_of(), session).prepare(IMAGES)
    predictor = remote(model_of(), client.attach(session.id))
    first = predictor(IMAGES)
    with client.session(resume=session.id) as resumed:
        net = remote(model_of(), resumed, put=False)
        assert torch.equal(predictor(IMAGES), first)
        step(net, optim.SGD(net.parameters(), lr=0.1))
        assert not torch.equal(predictor(IMAGES), first)
    with pytest.raises(convgrad.SessionExpired):
        predictor(IMAGES)


def test_forwards_that_ask_about_their_call(client):
    model = Asking()
    with remote(model, client) as net:
        net.prepare(IMAGES)
        predictor = remote(Asking(), client.attach(net.session.id))
        with torch.no_grad():
            assert torch.allclose(predictor(IMAGES), model(IMAGES))
        with pytest.raises(convgrad.Unimplemented, match="a question about its call"):
            predictor(IMAGES)


def test_bf16_is_the_predictors_choice(trainer, attached):
    trainer.prepare(IMAGES)
    exact = remote(model_of(), attached)(IMAGES)
    rounded = remote(model_of(), attached, dtype=torch.bfloat16)(IMAGES)
    assert not torch.equal(rounded, exact)
    assert torch.allclose(rounded, exact, atol=0.1)


def test_a_prediction_waits_for_none_of_the_steps_that_are_sent_ahead():
    server = ServerProcess("--workers=1")
    with convgrad.Client(server.address, timeout=300) as client, \
            remote(model_of(UNet), client) as net:
        net.prepare(IMAGES)
        predictor = remote(model_of(UNet), client.attach(net.session.id))
        first = predictor(IMAGES)
        optimizer = optim.SGD(net.parameters(), lr=0.01)
        images, labels = (one.repeat(32, *[1] * (one.dim() - 1)) for one in (IMAGES, LABELS))
        steps = [net.submit_train_step(images, labels, optimizer=optimizer) for _ in range(40)]
        steps[0].result()
        assert not torch.equal(predictor(IMAGES), first)
        assert not steps[-1].done()
    server.kill()
