"""Runs networks with other programs: ONNX Runtime and OpenVINO in this process, for inference;
a Ray actor and a torch RPC worker that hold the PyTorch model in their own processes.

`deploy/dependencies peers` installs the packages except PyTorch. A measurement omits packages
that aren't installed.
"""

import importlib.util
import os
import pathlib
import secrets
import sys
import tempfile
import threading

import torch
from networks_models import make
from networks_runners import InProcess
from torch.distributed import rpc

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from torch_rpc_worker import start_worker  # noqa: E402


def _exported(name, images, folder):
    path = os.path.join(folder, f"{name}.onnx")
    torch.onnx.export(make(name).eval(), (images,), path, input_names=["images"],
                      external_data=False, verbose=False)
    return path


class OnnxRuntime:
    """Runs inference in f32, because its CPU provider has no bf16 convolution."""

    def __init__(self, name, images):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        with tempfile.TemporaryDirectory() as folder:
            self._session = onnxruntime.InferenceSession(
                _exported(name, images, folder), options, providers=["CPUExecutionProvider"])

    def infer(self, images, steps):
        """Returns the outputs."""
        for _ in range(steps):
            outputs = self._session.run(None, {"images": images.numpy()})
        return torch.from_numpy(outputs[0])

    def close(self):
        self._session = None


class OpenVino:
    """Runs inference in the requested dtype."""

    def __init__(self, name, images, dtype):
        import openvino
        core = openvino.Core()
        with tempfile.TemporaryDirectory() as folder:
            model = core.read_model(_exported(name, images, folder))
            self._model = core.compile_model(model, "CPU", {
                "INFERENCE_NUM_THREADS": torch.get_num_threads(),
                "INFERENCE_PRECISION_HINT": dtype, "PERFORMANCE_HINT": "LATENCY"})

    def infer(self, images, steps):
        """Returns the outputs."""
        for _ in range(steps):
            outputs = self._model([images.numpy()])
        return torch.from_numpy(outputs[0])

    def close(self):
        self._model = None


class Held:
    """A model in another process: eager, channels last."""

    def __init__(self, name, dtype, threads):
        torch.set_num_threads(threads)
        self._runner = InProcess(name, dtype, "last")

    def train(self, images, labels):
        return self._runner.train(torch.as_tensor(images), torch.as_tensor(labels), 1)[0]

    def infer(self, images):
        return self._runner.infer(torch.as_tensor(images), 1)

    def eval(self):
        self._runner.eval()


class RayActor:
    """An actor on a Ray cluster on this host. Submits training steps without waiting."""

    def __init__(self, name, dtype):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
        # Otherwise Ray writes a token into the home folder.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        import ray
        self._ray = ray
        threads = torch.get_num_threads()
        here = os.path.dirname(os.path.abspath(__file__))
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        ray.init(num_cpus=threads, include_dashboard=False, log_to_driver=False,
                 logging_level="ERROR",
                 runtime_env={"env_vars": {"PYTHONPATH": path}})
        self._actor = ray.remote(num_cpus=threads)(Held).remote(name, dtype, threads)

    def train(self, images, labels, steps):
        images, labels = images.numpy(), labels.numpy()
        return self._ray.get([self._actor.train.remote(images, labels) for _ in range(steps)])

    def infer(self, images, steps):
        """Returns the outputs."""
        for _ in range(steps):
            outputs = self._ray.get(self._actor.infer.remote(images.numpy()))
        return outputs

    def eval(self):
        self._ray.get(self._actor.eval.remote())

    def close(self):
        self._ray.shutdown()


_held = []
_one_at_a_time = threading.Lock()  # because the worker runs each call on its own thread


def _hold(*settings):
    _held[:] = [Held(*settings)]


def _release():
    _held.clear()


def _call_held(method, *arguments):
    with _one_at_a_time:
        return getattr(_held[0], method)(*arguments)


class TorchRpc:
    """A worker of torch RPC. Submits training steps without waiting."""

    def __init__(self, name, dtype):
        start_worker()
        rpc.rpc_sync("worker", _hold, (name, dtype, torch.get_num_threads()))

    def train(self, images, labels, steps):
        futures = [rpc.rpc_async("worker", _call_held, ("train", images, labels))
                   for _ in range(steps)]
        return torch.futures.wait_all(futures)

    def infer(self, images, steps):
        """Returns the outputs."""
        for _ in range(steps):
            outputs = rpc.rpc_sync("worker", _call_held, ("infer", images))
        return outputs

    def eval(self):
        rpc.rpc_sync("worker", _call_held, ("eval",))

    def close(self):
        rpc.rpc_sync("worker", _release)


def has(package):
    return importlib.util.find_spec(package) is not None
