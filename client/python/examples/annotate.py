"""Trains a U-Net on a few labelled pixels of five images while another process predicts.

The predicting process labels more pixels every ten steps. Halfway, a new process resumes the
training."""
import argparse
import multiprocessing
import threading
import time
import zlib

import numpy as np
import torch
from segment_shapes import CLASSES, UNet, draw, generate

import convgrad.torch


def train(target, session_id, images, pipe):
    """Trains in a new or an existing session until it receives None. The session stays open."""
    with convgrad.Client(target) as client, client.session(
            lease=60, keep_open=True, resume=session_id or False) as session:
        net = convgrad.torch.remote(UNet(), session, put=not session_id)
        adam = convgrad.torch.optim.Adam(net.parameters(), lr=3e-3, resume=bool(session_id))
        begins = f"begins at change {session.number}, {digest(net)}"
        net.prepare(images)  # other processes may predict from now on
        pipe.send((session.id, begins))
        batch, step = pipe.recv(), 0
        while batch:
            loss, step = net.train_step(*batch, optimizer=adam, ignore_index=-100), step + 1
            if step % 10 == 0:
                pipe.send((step, f"step {step}: loss {loss:.3f}"))
            batch = pipe.recv() if pipe.poll() else batch
        pipe.send((None, f"ends at change {session.number}, {digest(net)}"))


def digest(net):
    tensors = (tensor.numpy().tobytes() for tensor in net.state_dict().values())
    return f"weights {zlib.crc32(b''.join(tensors)):08x}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--target", help="a server's address; default: starts one")
    parser.add_argument("--rounds", type=int, default=12, help="predictions beside a trainer")
    parser.add_argument("--thread", action="store_true", help="train in a thread of this one")
    parser.add_argument("--picture", metavar="PNG", help="save predictions over time")
    options = parser.parse_args()
    server = None if options.target else convgrad.LocalServer()
    target = options.target or server.address
    kind = threading.Thread if options.thread else multiprocessing.get_context("spawn").Process
    pixels, truth = generate(5, torch.Generator().manual_seed(1))
    taken = [(image.clamp(0, 1).numpy() * np.iinfo(dtype).max).astype(dtype)  # by two cameras
             for image, dtype in zip(pixels, 3 * (np.uint8, np.uint16))]
    images = torch.from_numpy(np.stack([i / np.float32(np.iinfo(i.dtype).max) for i in taken]))
    labels, found, session_id = torch.full_like(truth, -100), [], None  # -100: no label
    with convgrad.Client(target) as client:
        for _ in range(2):  # trainers
            pipe, *other = multiprocessing.Pipe()  # of which only the trainer keeps the other
            given = target, session_id, images, other.pop()
            kind(target=train, args=given, daemon=True).start()
            del given
            session_id, news = pipe.recv()
            print(news)
            predictor = convgrad.torch.remote(UNet(), client.attach(session_id))
            predictor(images)  # the first call exports the model, which takes a second
            for _ in range(options.rounds):
                for i, c in np.ndindex(len(truth), len(CLASSES)):
                    places = (truth[i] == c).nonzero()  # two more are labelled
                    labels[i][tuple(places[torch.randperm(len(places))[:2]].T)] = c
                pipe.send((images, labels))
                news, asked = pipe.recv()[1], time.perf_counter()
                found.append(predictor(images).argmax(1))
                wait = time.perf_counter() - asked
                right = sum((found[-1] == c)[truth == c].float().mean() for c in range(3)) / 3
                print(f"{news}, {right:.2%} of each class right, answered in {wait:.3f} s")
            pipe.send(None)  # cancels the training
            print(next(news for step, news in iter(pipe.recv, None) if step is None))
        client.session(resume=session_id).close()
    if options.picture:
        first = [0] * len(found[::4])
        draw(images[first], truth[first], torch.stack(found[::4])[:, 0], options.picture)


if __name__ == "__main__":
    main()
