#!/usr/bin/env python3
"""Fails on an include that crosses the layers of the source tree.

    layers.py [FILE...]    checks these, or every source file of the tree
    layers.py --self-test  checks that forged violations are reported
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOUSE = ("backends", "client", "proto", "server", "tests")

CORE = "backends/core/"
KERNELS = "backends/kernels/"
PROOF = "backends/proof/"
REGISTRY = "backends/registry."
BACKENDS = "backends/"
ANYTHING = (BACKENDS, "proto/", "server/", "client/")

# What each place may include besides its own folder; the longest prefix of a
# path decides. A prefix ending in "." means the file of that name, .h or .cc.
SEES = {
    "backends/core/": (),
    "backends/reference/": (CORE,),
    "backends/kernels/": (CORE,),
    "backends/proof/": (CORE, KERNELS),
    # The folder of any other backend: siblings never see each other.
    BACKENDS: (CORE, KERNELS),
    "backends/registry.": (BACKENDS,),
    "proto/": (CORE,),
    # The side socket and what is said there are the wire's; no protobuf in it.
    "server/memory/":
        (CORE, KERNELS, "proto/file_descriptor.", "proto/region_handshake."),
    "server/telemetry/": (CORE,),
    "server/scheduling/":
        (CORE, KERNELS, PROOF, REGISTRY, "server/memory/",
         "server/telemetry/"),
    "server/sessions/": (CORE, "server/memory/"),
    "server/rpc/": (CORE, KERNELS, REGISTRY, "proto/", "server/memory/",
                    "server/scheduling/", "server/sessions/",
                    "server/telemetry/"),
    "server/": (CORE, REGISTRY, PROOF, "proto/"),
    "client/": (CORE, "proto/"),
    # Whole programs and the one suite for all backends.
    "tests/conformance/": (CORE, BACKENDS),
    "tests/backends/proof/": (CORE, BACKENDS),
    # Its tensors are computed with.
    "tests/server/memory/":
        (CORE, REGISTRY, "proto/region_handshake.", "server/memory/"),
    "tests/gpu/": (CORE, BACKENDS),
    "tests/end_to_end/": ANYTHING,
    "tests/fuzz/": ANYTHING,
    "tests/bench/": ANYTHING,
    "tests/cases/": ANYTHING,
}

# Headers of a library family, and the places that may include them.
WIRE = ("proto/", "server/rpc/", "server/server.", "server/main.", "client/")
FAMILIES = {
    "oneDNN": (r"(oneapi/dnnl/|dnnl)", ("backends/onednn/",)),
    "OpenMP": (r"omp\.h", ("backends/onednn/",)),
    "CUDA": (r"(cuda|cudnn|cublas|nccl|nvtx)", ("backends/cuda/",)),
    "OpenTelemetry": (r"opentelemetry/", ("server/telemetry/",)),
    "Prometheus": (r"prometheus/", ("server/telemetry/",)),
    "gRPC and protobuf": (r"(grpc|google/|.*\.pb\.h$)", WIRE),
    "Highway": (r"hwy/", ("backends/kernels/",)),
    "spdlog": (r"(spdlog|fmt)/", ("server/",)),
    "test": (r"(gtest|gmock|benchmark)/", ("tests/",)),
}
# Tests of whole programs see the wire as a client does.
WHOLE = ("tests/end_to_end/", "tests/fuzz/", "tests/bench/", "tests/cases/")

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)


def matches(path, prefix):
    return path.startswith(prefix) or path + "/" == prefix


def rule_of(path):
    """Returns the longest key of SEES that `path` lies under, or None."""
    keys = [key for key in SEES if matches(path, key)]
    return max(keys, key=len, default=None)


def visible(path):
    """Returns the prefixes that the source at `path` may include."""
    if path.startswith("tests/") and rule_of(path) is None:
        # tests/a/b_test.cc sees a/, what a/ sees, core, and test doubles.
        return (CORE, "tests/") + visible(path.removeprefix("tests/"))
    rule = rule_of(path)
    if rule is None:
        return (str(pathlib.PurePosixPath(path).parent) + "/",)
    own = rule if rule.endswith("/") else BACKENDS
    if rule == BACKENDS:
        own = "/".join(path.split("/")[:2]) + "/"
    if path.startswith("tests/"):
        own = "tests/"
    return (own,) + SEES[rule]


def complaints(path, text):
    """Yields one line for each include of `text` that `path` may not have."""
    tested = path if path.startswith(WHOLE) else path.removeprefix("tests/")
    for found in INCLUDE.finditer(text):
        quote, header = found.groups()
        line = text.count("\n", 0, found.start(2)) + 1
        ours = header.split("/")[0] in HOUSE
        if ours and not any(matches(header, seen) for seen in visible(path)):
            yield f"{path}:{line}: may not see {header}"
        family = False
        for name, (pattern, rooms) in FAMILIES.items():
            if not re.match(pattern, header):
                continue
            family = True
            if name == "test":
                allowed = path.startswith("tests/")
            else:
                allowed = tested.startswith(rooms + WHOLE)
            if not allowed:
                yield f"{path}:{line}: {name} headers belong in " + \
                    f"{', '.join(rooms)}: {header}"
        if quote == '"' and "/" not in header and not family:
            yield f"{path}:{line}: write the path from the top: {header}"


def self_test():
    bad = {
        "backends/core/data_type.h": ["backends/reference/reference_backend.h",
                                      "google/protobuf/message.h", "dnnl.hpp"],
        "backends/reference/a.cc": ["backends/onednn/onednn_backend.h",
                                    "backends/registry.h", "omp.h"],
        "backends/some_new_backend/a.cc": ["backends/onednn/a.h",
                                           "backends/registry.h",
                                           "backends/proof/a.h"],
        "backends/onednn/a.cc": ["server/config.h", "cudnn.h", "a.h"],
        "backends/proof/a.cc": ["backends/reference/reference_backend.h"],
        "backends/registry.cc": ["proto/codec.h"],
        "proto/codec.cc": ["server/config.h", "backends/registry.h",
                           "spdlog/spdlog.h", "client/cpp/client.h"],
        "server/memory/a.h": ["server/rpc/a.h", "server/scheduling/job.h",
                              "grpcpp/grpcpp.h", "hwy/highway.h",
                           "proto/codec.h"],
        "server/telemetry/a.cc": ["server/scheduling/job.h",
                                  "proto/convgrad/v1/convgrad.pb.h"],
        "server/scheduling/a.h": ["server/rpc/a.h", "prometheus/counter.h",
                                  "proto/codec.h", "backends/onednn/a.h"],
        "server/rpc/a.cc": ["backends/reference/reference_backend.h",
                            "prometheus/counter.h", "gtest/gtest.h"],
        "server/config.h": ["grpcpp/grpcpp.h", "client/cpp/client.h"],
        "client/cpp/client.h": ["server/config.h", "backends/registry.h"],
        "tests/backends/core/a_test.cc": ["server/config.h", "dnnl.hpp"],
        "tests/server/memory/a_test.cc": ["server/rpc/a.h"],
    }
    good = {
        "backends/core/a.cc": ["absl/status/status.h", "backends/core/a.h"],
        "backends/kernels/a.cc": ["backends/core/a.h", "hwy/highway.h"],
        "backends/onednn/a.cc": ["oneapi/dnnl/dnnl.hpp", "omp.h",
                                 "backends/core/backend.h"],
        "backends/some_new_backend/a.cc": ["backends/some_new_backend/a.h",
                                           "backends/kernels/a.h"],
        "backends/registry.cc": ["backends/onednn/onednn_backend.h"],
        "proto/codec.cc": ["proto/convgrad/v1/convgrad.pb.h"],
        "server/scheduling/a.h": ["server/memory/buffer_pool.h",
                                  "backends/registry.h"],
        "server/main.cc": ["server/rpc/a.h", "grpcpp/grpcpp.h"],
        "server/telemetry/a.cc": ["prometheus/counter.h"],
        "client/cpp/main.cc": ["proto/codec.h", "grpcpp/channel.h"],
        "tests/server/rpc/a_test.cc": ["gtest/gtest.h", "grpcpp/grpcpp.h",
                                       "tests/server/puppet_backend.h",
                                       "server/rpc/a.h"],
        "tests/conformance/a_test.cc": ["backends/onednn/onednn_backend.h"],
        "tests/end_to_end/a_test.cc": ["server/server.h", "grpcpp/grpcpp.h"],
    }
    wrong = []
    for is_bad, forged in ((True, bad), (False, good)):
        for path, headers in forged.items():
            for header in headers:
                found = list(complaints(path, f'#include "{header}"\n'))
                if bool(found) != is_bad:
                    verdict = "not reported" if is_bad else found[0]
                    wrong.append(f"self-test: {path}, {header}: {verdict}")
    return wrong


def sources():
    for top in HOUSE:
        for file in sorted((ROOT / top).rglob("*")):
            if file.suffix in (".h", ".cc", ".cu", ".cuh"):
                yield file


def main(arguments):
    if arguments == ["--self-test"]:
        found = self_test()
    else:
        files = [pathlib.Path(a).resolve() for a in arguments] or sources()
        found = [line for file in files for line in complaints(
            file.relative_to(ROOT).as_posix(), file.read_text())]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
