"""Sessions with tensors in shared memory whose connections are cut."""

import contextlib

import numpy as np
from cutting_proxy import CuttingProxy
from server_process import ServerProcess

import convgrad

X = np.arange(2 * 4 * 6 * 6, dtype=np.float32).reshape(2, 4, 6, 6) % 7 - 3
W = np.arange(6 * 4 * 3 * 3, dtype=np.float32).reshape(6, 4, 3, 3) % 5 - 2
G = np.arange(2 * 6 * 6 * 6, dtype=np.float32).reshape(2, 6, 6, 6) % 3 - 1


def until_available(call):
    while True:
        with contextlib.suppress(convgrad.Unavailable):
            return call()


def test_connections_that_are_cut_change_no_bit_in_shared_memory(tmp_path):
    server = ServerProcess(f"--regions_listen=unix:{tmp_path}/regions")
    retry = convgrad.RetryPolicy(max_attempts=10_000, max_seconds=0.05)
    with convgrad.Client(server.address) as client, client.region(2**20) as region:
        proxy = CuttingProxy(server.address, cuts=100, mean_bytes=4000)
        with convgrad.Client(proxy.address, retry=retry) as cut, cut.session() as session:
            cut._share(region)
            x, y = region.empty(X.shape), region.empty(G.shape)
            expected = client.conv_forward(X, W, padding=1).output
            for i in range(1, 301):
                x[...] = X * i
                session.put({"x": x, "w": W}, layouts={"w": "OIX"})
                # The client repeats no read with results in shared memory.
                until_available(lambda: session.conv_forward(
                    "x", "w", padding=1, out={"output": y}))
                np.testing.assert_array_equal(y, i * expected)
                session.conv_backward(G, x, "w", padding=1, gradients="grad_weight",
                                      add={"grad_weight": "gw"})
            sums = session.get("gw")
            assert session.number == 600 and proxy.cuts == 100
        proxy.close()
        gw = client.conv_backward(G, X, W, padding=1).grad_weight
        np.testing.assert_array_equal(sums, gw * (300 * 301 // 2))
    server.kill()
