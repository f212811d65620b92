"""Runs the server that calls are timed on, and lists the calls' problems."""
import re
import subprocess
import sys

LAYERS = {
    "stem 7x7/2": "conv2d_n16_c3_o64_i224_k7_s2_p3",
    "64>64 3x3 56": "conv2d_n16_c64_o64_i56_k3_p1",
    "64>256 1x1 56": "conv2d_n16_c64_o256_i56_k1",
    "128>128 3x3 28": "conv2d_n16_c128_o128_i28_k3_p1",
    "512>1024 1x1/2 28": "conv2d_n16_c512_o1024_i28_k1_s2",
    "512>512 3x3 7": "conv2d_n16_c512_o512_i7_k3_p1",
}
SHORT_LAYERS = {"8>8 3x3 8": "conv2d_n4_c8_o8_i8_k3_p1"}
TINY = "conv2d_n1_c8_o8_i8_k3_p1"
SCALED = "conv2d_n{}_c64_o64_i56_k3_p1"


class Server:
    """Runs a convgrad-server with every kind of listener, with sockets in `folder`."""

    def __init__(self, build, folder, prefix=()):
        self.unix = f"unix:{folder}/call"
        self.regions = f"unix:{folder}/regions"
        self.process = subprocess.Popen(
            [*prefix, f"{build}/server/convgrad-server",
             f"--listen=127.0.0.1:0,{self.unix}",
             f"--regions_listen={self.regions}", "--metrics_listen="],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            if found:
                self.tcp = f"127.0.0.1:{found.group(1)}"
                return
        sys.exit("convgrad-server doesn't start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate()
