#!/usr/bin/env python3
"""Fails if an include crosses the layers of the source tree, or if a folder has
more than 30 files.

    layers.py [FILE...]    checks these, or the whole tree
    layers.py --self-test  checks that forged violations are reported
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOUSE = ("backends", "client", "proto", "server", "tests")

CORE = "backends/core/"
CONTRACT = "backends/core/*"
KERNELS = "backends/kernels/"
ONEDNN = "backends/onednn/"
PLANNING = (ONEDNN + "execution/", ONEDNN + "library/")
STEPS = ONEDNN + "networks/steps/"
STEP = (CORE, KERNELS, ONEDNN + "networks/schedule/", STEPS + "*") + PLANNING
PROOF = "backends/proof/"
REGISTRY = "backends/registry."
BACKENDS = "backends/"
SERVER = tuple(f"server/{room}/" for room in (
    "durability", "flags", "machine", "memory", "rpc", "scheduling", "sessions",
    "snapshots", "telemetry"))
CALLS = (CORE, KERNELS, REGISTRY, "proto/", "server/flags/config.",
         "server/memory/", "server/scheduling/", "server/sessions/", "server/telemetry/",
         "server/rpc/transport/")
CLIENT = (CORE, "proto/", "client/cpp/*", "client/cpp/calls/")
ANYTHING = (BACKENDS, "proto/", "server/", "client/")

# The rooms, and the files that each room may include besides its own. A path
# belongs to the longest key that it begins with. In a value, "a/b/" means that
# room and the rooms in it, "a/b/*" only that room, "a/b." the files b.h and b.cc.
SEES = {
    "backends/core/": (),
    "backends/core/convolution/": (CONTRACT,),
    "backends/core/optimizer/": (CONTRACT,),
    "backends/core/program/":
        (CONTRACT, CORE + "convolution/", CORE + "optimizer/",
         CORE + "program/operators/"),
    "backends/core/program/operators/": (CONTRACT, CORE + "convolution/"),
    "backends/core/program/operators/windows/":
        (CONTRACT, CORE + "program/operators/*"),
    "backends/reference/": (CORE,),
    "backends/kernels/copies/": (CONTRACT,),
    "backends/kernels/operators/": (CONTRACT, KERNELS + "copies/"),
    "backends/kernels/tokens/": (CONTRACT, KERNELS + "operators/"),
    "backends/kernels/operators/windows/": (CONTRACT, KERNELS + "operators/*"),
    "backends/kernels/convolutions/":
        (CONTRACT, CORE + "convolution/", KERNELS + "copies/", KERNELS + "operators/"),
    "backends/proof/": (CORE, KERNELS),
    # The folder of any other backend: backends never include each other.
    BACKENDS: (CORE, KERNELS),
    "backends/onednn/": (CORE, KERNELS, ONEDNN),
    "backends/onednn/library/": (CORE, KERNELS),
    "backends/onednn/execution/": (CORE, KERNELS, ONEDNN + "library/"),
    "backends/onednn/convolutions/": (CORE, KERNELS) + PLANNING,
    "backends/onednn/networks/":
        (CORE, KERNELS, ONEDNN + "networks/") + PLANNING,
    "backends/onednn/networks/schedule/": (CORE, KERNELS) + PLANNING,
    STEPS: STEP + (STEPS,),
    **{STEPS + folder: STEP for folder in (
        "convolutions/", "copies/", "elements/", "losses/", "norms/", "products/", "windows/")},
    "backends/cuda/": (CORE, KERNELS, "backends/cuda/"),
    "backends/cuda/device/": (CONTRACT,),
    "backends/registry.": (BACKENDS,),
    "proto/": (CONTRACT, CORE + "convolution/"),
    "proto/codec/": (CORE, "proto/*"),
    "server/machine/": (CONTRACT, "proto/file_descriptor."),
    "server/flags/": (CONTRACT, "proto/server_address.h", "server/machine/", "server/memory/"),
    # The side socket's protocol belongs to the wire; it needs no protobuf.
    "server/memory/":
        (CORE, KERNELS, "proto/file_descriptor.", "proto/region_handshake.",
         "server/machine/"),
    "server/telemetry/": (CORE,),
    "server/scheduling/":
        (CORE, KERNELS, PROOF, REGISTRY, "server/memory/",
         "server/telemetry/"),
    "server/sessions/":
        (CORE, "proto/call_metadata.", "proto/sha256.", "server/memory/"),
    # Programs are stored as on the wire.
    "server/durability/":
        (CORE, "proto/codec/program_codec.", "server/machine/",
         "server/memory/", "server/sessions/", "server/snapshots/"),
    # Files, digests and bytes: it knows no session.
    "server/snapshots/": (CONTRACT, "proto/file_descriptor.", "proto/sha256."),
    "server/rpc/transport/": (CONTRACT, "proto/", "server/machine/"),
    "server/rpc/calls/": CALLS,
    "server/rpc/tensors/": CALLS + ("server/rpc/calls/",),
    "server/rpc/convolutions/":
        CALLS + ("server/rpc/calls/", "server/rpc/tensors/"),
    "server/rpc/networks/":
        CALLS + ("server/rpc/calls/", "server/rpc/tensors/"),
    "server/rpc/": CALLS + ("server/rpc/",),
    "server/": (CORE, REGISTRY, PROOF, "proto/") + SERVER,
    "client/": (CORE, "proto/"),
    "client/cpp/calls/": (CONTRACT, "proto/*"),
    "client/cpp/": (CORE, "proto/", "client/cpp/calls/"),
    "client/cpp/sessions/": CLIENT,
    "client/cpp/examples/": (CORE, "proto/", "client/cpp/"),
    "client/cpp/command_line/": (CORE, "proto/", "client/cpp/"),
    "client/cpp/command_line/activity/": (CONTRACT,),
    "client/cpp/command_line/settings/": CLIENT,
    "client/cpp/command_line/files/":
        CLIENT + ("client/cpp/command_line/settings/",),
    "client/cpp/command_line/checks/":
        CLIENT + ("client/cpp/command_line/settings/",
                  "client/cpp/command_line/files/"),
    # Tests of whole programs, and the suite for all backends.
    "tests/conformance/": (CORE, BACKENDS),
    "tests/backends/proof/": (CORE, BACKENDS),
    # Its tests compute with tensors.
    "tests/server/memory/":
        (CORE, REGISTRY, "proto/region_handshake.", "server/memory/"),
    "tests/client/": (CORE, "proto/", "client/"),
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
    "gRPC": (r"(grpc|.*\.grpc\.pb\.h$)", WIRE),
    "protobuf": (r"(google/|.*\.pb\.h$)",
                 WIRE + ("server/snapshots/", "server/durability/")),
    "JSON": (r"nlohmann/", ("client/cpp/command_line/",)),
    "CLI11": (r"CLI/", ("server/flags/", "client/cpp/command_line/")),
    "Highway": (r"hwy/", ("backends/kernels/",)),
    "spdlog": (r"(spdlog|fmt)/", ("server/",)),
    "test": (r"(gtest|gmock|benchmark)/", ("tests/",)),
}
# Tests of whole programs may use the wire, as a client does.
WHOLE = ("tests/end_to_end/", "tests/fuzz/", "tests/bench/", "tests/cases/")

# A folder with more files must be divided.
MOST_FILES = 30
# Folders that may have more files, with the reason.
FULL = {}
# Generated folders, which aren't committed.
MADE = ("__pycache__", "build", "v1")

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)


def room_of(path):
    """Returns the longest key of SEES that `path` begins with; None if there is none."""
    return max(filter(path.startswith, SEES), key=len, default=None)


def matches(header, entry):
    """Returns whether an entry of SEES includes `header`."""
    if entry.endswith("/*"):
        return room_of(header) == entry[:-1]
    return header.startswith(entry)


def visible(path):
    """Returns the entries that the source at `path` may include."""
    room = room_of(path)
    if path.startswith("tests/"):
        if room is not None:
            return ("tests/",) + SEES[room]
        # tests/a/b_test.cc may include a/, the entries of a/, core, and test doubles.
        return (CORE, "tests/") + visible(path.removeprefix("tests/"))
    if room is None:
        return (str(pathlib.PurePosixPath(path).parent) + "/",)
    if room == "backends/registry.":
        own = BACKENDS
    elif room == BACKENDS:
        own = "/".join(path.split("/")[:2]) + "/"
    else:
        own = room + "*"
    return (own,) + SEES[room]


def complaints(path, text):
    """Yields one line for each forbidden include in `text`, the file at `path`."""
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


def full_folders(counts, exceptions):
    """Yields one line for each folder of `counts` with too many files, and for
    each exception that no folder needs."""
    for folder, count in sorted(counts.items()):
        if count > MOST_FILES and folder not in exceptions:
            yield f"{folder}: {count} files, {MOST_FILES} at most"
    for folder in exceptions:
        if counts.get(folder, 0) <= MOST_FILES:
            yield f"{folder}: isn't full any more, so needs no exception"


def file_counts():
    """Returns the number of files of each folder, without subfolders."""
    counts = collections.Counter()
    for top in HOUSE:
        for file in (ROOT / top).rglob("*"):
            folder = file.parent.relative_to(ROOT)
            if file.is_file() and not set(folder.parts) & set(MADE):
                counts[folder.as_posix()] += 1
    return counts


def self_test():
    bad = {
        "backends/core/data_type.h": ["backends/reference/reference_backend.h",
                                      "google/protobuf/message.h", "dnnl.hpp",
                                      "backends/core/convolution/a.h"],
        "backends/core/convolution/a.h": ["backends/core/program/a.h",
                                          "backends/core/optimizer/a.h"],
        "backends/core/optimizer/a.h": ["backends/core/convolution/a.h"],
        "backends/core/program/operators/a.cc":
            ["backends/core/program/program.h",
             "backends/core/optimizer/a.h"],
        "backends/kernels/copies/a.cc": ["backends/kernels/operators/a.h",
                                         "backends/core/convolution/a.h"],
        "backends/kernels/operators/a.cc": ["backends/core/program/a.h",
                                            "backends/kernels/operators/windows/a.h",
                                            "backends/kernels/convolutions/a.h"],
        "backends/reference/a.cc": ["backends/onednn/onednn_backend.h",
                                    "backends/registry.h", "omp.h"],
        "backends/some_new_backend/a.cc": ["backends/onednn/a.h",
                                           "backends/registry.h",
                                           "backends/proof/a.h"],
        "backends/onednn/a.cc": ["server/flags/config.h", "cudnn.h", "a.h"],
        "backends/onednn/library/a.cc": ["backends/onednn/convolutions/a.h",
                                         "backends/onednn/networks/a.h",
                                         "backends/onednn/a.h"],
        "backends/onednn/execution/a.cc": ["backends/onednn/convolutions/a.h",
                                           "backends/onednn/networks/a.h"],
        "backends/onednn/networks/a.cc": ["backends/onednn/convolutions/a.h"],
        "backends/onednn/networks/schedule/a.cc":
            ["backends/onednn/networks/steps/a.h"],
        "backends/onednn/networks/steps/a.cc": ["backends/onednn/networks/a.h"],
        "backends/onednn/networks/steps/norms/a.cc":
            ["backends/onednn/networks/steps/products/a.h"],
        "backends/cuda/device/a.cc": ["backends/cuda/cuda_graph.h"],
        "backends/proof/a.cc": ["backends/reference/reference_backend.h"],
        "backends/registry.cc": ["proto/codec/codec.h"],
        "proto/pem_files.cc": ["proto/codec/codec.h",
                               "backends/core/program/a.h"],
        "proto/codec/codec.cc": ["server/flags/config.h",
                                 "backends/registry.h", "spdlog/spdlog.h",
                                 "client/cpp/client.h"],
        "server/memory/a.h": ["server/rpc/a.h", "server/scheduling/job.h",
                              "grpcpp/grpcpp.h", "hwy/highway.h",
                              "proto/codec/codec.h"],
        "server/snapshots/a.cc": ["server/sessions/a.h", "server/memory/a.h",
                                  "grpcpp/grpcpp.h", "nlohmann/json.hpp"],
        "server/telemetry/a.cc": ["server/scheduling/job.h",
                                  "proto/convgrad/v1/convgrad.pb.h"],
        "server/scheduling/a.h": ["server/rpc/a.h", "prometheus/counter.h",
                                  "proto/codec/codec.h",
                                  "backends/onednn/a.h"],
        "server/rpc/a.cc": ["backends/reference/reference_backend.h",
                            "prometheus/counter.h", "gtest/gtest.h"],
        "server/rpc/transport/a.cc": ["server/rpc/calls/a.h",
                                      "server/scheduling/job.h"],
        "server/rpc/calls/a.cc": ["server/rpc/tensors/a.h", "server/rpc/a.h"],
        "server/rpc/tensors/a.cc": ["server/rpc/networks/a.h"],
        "server/rpc/networks/a.cc": ["server/rpc/convolutions/a.h"],
        "server/rpc/convolutions/a.cc": ["server/rpc/networks/a.h"],
        "server/machine/a.cc": ["server/flags/config.h", "CLI/CLI.hpp"],
        "server/sessions/a.cc": ["server/durability/a.h",
                                 "server/snapshots/manifest.pb.h"],
        "server/durability/a.cc": ["server/rpc/calls/a.h", "grpcpp/grpcpp.h",
                                   "proto/codec/codec.h"],
        "server/flags/config.h": ["grpcpp/grpcpp.h", "client/cpp/client.h",
                                  "server/server.h"],
        "client/cpp/client.h": ["server/flags/config.h", "backends/registry.h",
                                "client/cpp/sessions/session.h"],
        "client/cpp/calls/a.cc": ["client/cpp/client.h"],
        "client/cpp/sessions/a.cc": ["client/cpp/command_line/output.h"],
        "client/cpp/command_line/files/a.cc":
            ["client/cpp/command_line/checks/a.h"],
        "tests/backends/core/a_test.cc": ["server/flags/config.h", "dnnl.hpp"],
        "tests/server/memory/a_test.cc": ["server/rpc/a.h"],
        "tests/server/rpc/calls/a_test.cc": ["server/rpc/networks/a.h"],
    }
    good = {
        "backends/core/a.cc": ["absl/status/status.h", "backends/core/a.h"],
        "backends/core/program/a.cc": ["backends/core/convolution/a.h",
                                       "backends/core/optimizer/a.h",
                                       "backends/core/a.h"],
        "backends/kernels/operators/a.cc": ["backends/core/a.h",
                                            "hwy/highway.h",
                                            "backends/kernels/copies/a.h"],
        "backends/onednn/library/a.cc": ["oneapi/dnnl/dnnl.hpp", "omp.h",
                                         "backends/core/backend.h"],
        "backends/onednn/networks/a.cc":
            ["backends/onednn/networks/steps/a.h",
             "backends/onednn/library/a.h"],
        "backends/onednn/networks/steps/norms/a.cc":
            ["backends/onednn/networks/steps/a.h"],
        "backends/some_new_backend/a.cc": ["backends/some_new_backend/a.h",
                                           "backends/some_new_backend/b/a.h",
                                           "backends/kernels/copies/a.h"],
        "backends/registry.cc": ["backends/onednn/onednn_backend.h"],
        "proto/codec/codec.cc": ["proto/convgrad/v1/convgrad.pb.h",
                                 "proto/message_parts.h"],
        "server/scheduling/a.h": ["server/memory/buffer_pool.h",
                                  "backends/registry.h"],
        "server/snapshots/a.h": ["server/snapshots/manifest.pb.h"],
        "client/cpp/command_line/a.cc": ["nlohmann/json.hpp"],
        "server/rpc/networks/a.cc": ["server/rpc/networks/a.h",
                                     "server/rpc/tensors/a.h",
                                     "server/rpc/calls/a.h"],
        "server/rpc/a.cc": ["server/rpc/networks/a.h"],
        "server/durability/a.cc": ["server/sessions/a.h",
                                   "server/snapshots/a.h"],
        "server/main.cc": ["server/rpc/a.h", "grpcpp/grpcpp.h",
                           "server/server.h"],
        "server/telemetry/a.cc": ["prometheus/counter.h"],
        "client/cpp/a.cc": ["proto/codec/codec.h", "grpcpp/channel.h"],
        "client/cpp/command_line/main.cc":
            ["client/cpp/command_line/settings/usage.h"],
        "tests/server/rpc/calls/a_test.cc": ["gtest/gtest.h",
                                             "grpcpp/grpcpp.h",
                                             "tests/server/puppet_backend.h",
                                             "server/rpc/calls/a.h"],
        "tests/client/cpp/command_line/files/a_test.cc":
            ["client/cpp/command_line/files/npy.h"],
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
    counts = {"backends/a": MOST_FILES, "backends/b": MOST_FILES + 1,
              "backends/c": MOST_FILES + 1}
    exceptions = {"backends/c": "of necessity", "backends/a": "of habit"}
    found = list(full_folders(counts, exceptions))
    if [line.split(":")[0] for line in found] != ["backends/b", "backends/a"]:
        wrong.append(f"self-test: full folders: {found}")
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
        if not arguments:
            found += full_folders(file_counts(), FULL)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
