"""Tests forked processes: they get an error at once, without an effect on the parent."""

import pytest
from shared_steps import python

# Each child prints its actions. An alarm kills a child that hangs.
HEAD = """
import asyncio, os, signal, sys, traceback
import numpy as np
import convgrad
from convgrad import aio

address = sys.argv[1]
X, W = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)

def told(action):
    try:
        action()
        print("worked")
    except convgrad.FailedPrecondition as error:
        names = f"process {os.getpid()}, forked from process {os.getppid()}"
        print("refused", names in str(error))

def child(*actions):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        for action in actions:
            told(action)
        sys.exit(0)  # with all exit handlers
    print("ended with", os.waitpid(pid, 0)[1])

def forward(client):
    return lambda: client.conv_forward(X, W)
"""


def run(code, server, transport):
    found = python(HEAD + code, transport, arguments=[server.address])
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


@pytest.fixture(params=["native", "python"])
def transport(request):
    return request.param


def test_a_child_that_calls(server, transport):
    assert run("""
client = convgrad.Client(address, timeout=15)
client.submit(client.conv_forward, X, W).result()
child(forward(client), lambda: client.submit(client.conv_forward, X, W), client.session,
      client.close)
forward(client)()
""", server, transport) == ["refused True"] * 3 + ["worked", "ended with 0"]


def test_a_childs_changes(server, transport):
    assert run("""
client = convgrad.Client(address, timeout=15)
with client.session() as session:
    session.put("x", X)
    child(lambda: session.put("x", 2 * X), lambda: session.get("x"), session.tensors,
          lambda: session.submit(session.put, "x", 3 * X), session.close)
    session.put("y", X)
    print(session.number, sorted(session.tensors()), session.get("x").max(), session.failures)
""", server, transport) == ["refused True"] * 4 + [
        "worked", "ended with 0", "2 ['x', 'y'] 1.0 0"]


def test_a_child_in_which_a_session_is_left(server, transport):
    assert run("""
client = convgrad.Client(address, timeout=15)
session = client.session()
session.put("x", X)
sys.stdout.flush()
pid = os.fork()
try:
    with session:
        if pid == 0:
            signal.alarm(20)
            sys.exit(0)
        print("ended with", os.waitpid(pid, 0)[1], session.get("x").max())
finally:
    client.close()
""", server, transport) == ["ended with 0 1.0"]


def test_a_child_that_calls_a_layer(server, transport):
    """Another thread of the parent asks for shared memory when the child is forked."""
    pytest.importorskip("convgrad.torch")
    assert run("""
import threading, torch, convgrad.torch
client = convgrad.Client(address, timeout=15)
client.capabilities()
asks = threading.Event()
client.region = lambda nbytes: (asks.set(), threading.Event().wait())
x, w = torch.ones(1, 16, 256, 256), torch.ones(1, 16, 3, 3)
call = lambda: convgrad.torch.conv2d(x, w, client=client)
threading.Thread(target=call, daemon=True).start()
asks.wait()
child(call)
""", server, transport) == ["refused True", "ended with 0"]


def test_a_child_with_an_event_loop(server, transport):
    assert run("""
async def both(client, then):
    async with client:
        await client.conv_forward(X, W)
        session = await client.session()
        await session.put("x", X)
        then(client, session)
        await session.put("y", X)
        print(session.number)
        await session.close()

def in_child(client, session):
    # The fork has a running loop, which stands still: another thread's is of use.
    import threading
    def other(coroutine_of):
        def work():
            thread = threading.Thread(target=lambda: told(lambda: asyncio.run(coroutine_of())))
            thread.start()
            thread.join()
        return work
    async def call(): await client.conv_forward(X, W)
    async def change(): await session.put("x", X)
    async def end(): await session.close()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        for coroutine_of in (call, change, end):
            other(coroutine_of)()
        sys.stdout.flush()
        os._exit(0)
    print("ended with", os.waitpid(pid, 0)[1])

asyncio.run(both(aio.Client(address, timeout=15), in_child))
""", server, transport) == ["refused True"] * 2 + ["worked", "ended with 0", "2"]


def test_a_child_from_before_the_first_call(server, transport):
    assert run("""
client = convgrad.Client(address, timeout=15)
child(forward(client))
forward(client)()
""", server, transport) == ["worked", "ended with 0"]


def test_a_clients_own_child_finds_grpcs_threads_missing(server):
    """All channels of the native module share threads and an epoll set, also the parent's."""
    assert run("""
client = convgrad.Client(address, timeout=15)
forward(client)()
child(forward(convgrad.Client(address, timeout=15)))
forward(client)()
""", server, "native") == ["refused True", "ended with 0"]


def test_a_child_and_a_region(sharing, transport):
    """The child gets none of its parent's memory, and doesn't keep the server from freeing it.
    """
    assert run("""
import threading, time
client = convgrad.Client(address, timeout=15)
region = client.region(2**28)  # all that the server shares
(told_by_child, tell), (wait, let_go) = os.pipe(), os.pipe()
is_held, is_forked = threading.Event(), threading.Event()

def hold():
    with region._lock:
        is_held.set()
        is_forked.wait()

threading.Thread(target=hold).start()
is_held.wait()
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    os.close(let_go)
    told(lambda: region.empty(16))
    region.close()
    sys.stdout.flush()
    os.write(tell, b"1")
    os.read(wait, 1)
    os._exit(0)
os.close(tell)
is_forked.set()
os.read(told_by_child, 1)
print(region.is_open, region.empty(16).size)
region.close()
for _ in range(100):
    try:
        client.region(2**28)
        break
    except convgrad.ResourceExhausted:
        time.sleep(0.1)
else:
    print("the region is still there")
os.close(let_go)
print("ended with", os.waitpid(pid, 0)[1])
""", sharing, transport) == ["refused True", "True 16", "ended with 0"]
