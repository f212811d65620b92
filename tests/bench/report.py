"""Turns rows of rpc_ratio into tables and a plot."""
import json
import math
import os
import pathlib
import platform

CALLS = ("tcp", "unix", "stream", "region", "region_in_place")
FLOORS = ("onednn", "torch", "socket", "grpc", "copy")
STAGES = ("receive", "decode", "queue", "reorder", "compute", "encode")


def machine():
    """Returns a description of this machine."""
    model = platform.processor() or "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{model}, {len(os.sched_getaffinity(0))} cores, both ends on it"


def table(head, lines):
    """Returns a Markdown table."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def by_name(rows, part, dtype, problem):
    """Returns the rows of one race, by contestant."""
    return {row["name"]: row for row in rows
            if (row["part"], row["dtype"], row["problem"].split("_b")[0]) ==
            (part, dtype, problem)}


def problems_of(rows, part, dtype):
    """Returns the problems of a part, in order, without their bias."""
    found = [row["problem"].split("_b")[0] for row in rows
             if row["part"] == part and row["dtype"] == dtype]
    return list(dict.fromkeys(found))


def geomean(values):
    """Returns the geometric mean; nan if there are no values."""
    values = list(values)
    if not values:
        return math.nan
    return math.exp(sum(map(math.log, values)) / len(values))


def ratios(race):
    """Returns the ratios of a race's calls to the sums of its floors."""
    def time(name):
        return race[name]["min_ms"] if name in race else math.nan

    compute = time("onednn")
    return {
        "tcp / (B + G)": time("tcp") / (compute + time("grpc")),
        "tcp / (B + F)": time("tcp") / (compute + time("socket")),
        "tcp / A": time("tcp") / time("torch"),
        "unix / tcp": time("unix") / time("tcp"),
        "stream / tcp": time("stream") / time("tcp"),
        "region / (B + S)": time("region") / (compute + time("copy")),
        "in place / B": time("region_in_place") / compute,
        "in place / A": time("region_in_place") / time("torch"),
    }


def number(value, digits=2):
    """Formats a number; a dash if there is none."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def layer_tables(rows, labels, part, dtype):
    """Returns times, ratios and the server's stages of a part."""
    problems = problems_of(rows, part, dtype)
    if not problems:
        return ""
    races = [by_name(rows, part, dtype, problem) for problem in problems]
    names = [labels.get(problem, problem) for problem in problems]

    def milliseconds(name):
        return [number(race[name]["min_ms"]) if name in race else "-"
                for race in races]

    times = [[name, *milliseconds(name)] for name in FLOORS + CALLS
             if any(name in race for race in races)]
    all_ratios = [ratios(race) for race in races]
    lines = []
    for name in all_ratios[0]:
        values = [found[name] for found in all_ratios]
        lines.append([name, *map(number, values), number(
            geomean(v for v in values if not math.isnan(v)))])
    stages = [[stage, *(number(race["tcp"]["stages_ms"][stage], 3)
                        for race in races)] for stage in STAGES]
    return "\n".join((
        f"## {part}, {dtype}: milliseconds, minimum of "
        f"{races[0]['tcp']['count']}\n",
        table(["", *names], times),
        table(["ratio", *names, "geomean"], lines),
        "The server's stages of the last call by tcp, milliseconds:\n",
        table(["stage", *names], stages)))


def tiny_table(rows):
    """Returns the tiny call's quantiles."""
    lines = [[row["name"], number(row["p50_ms"] * 1e3, 0),
              number(row["p99_ms"] * 1e3, 0)]
             for row in rows if row["part"] == "tiny"]
    return "## tiny call: microseconds\n\n" + table(["", "p50", "p99"], lines)


def clients_table(rows):
    """Returns the calls per second of several clients."""
    part = [row for row in rows if row["part"] == "clients"]
    floor = {row["name"]: row["min_ms"] for row in part if "min_ms" in row}
    most = 1e3 / (floor["onednn"] + floor["socket"])
    lines = [[str(row["clients"]), number(row["calls_per_second"], 1),
              number(row["calls_per_second"] / most)]
             for row in part if "clients" in row]
    return ("## clients: calls per second\n\n"
            + table(["clients", "calls/s", "x (B + F)"], lines))


def plot(rows, labels, path):
    """Draws each layer's ratios of calls to floors, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot
    problems = problems_of(rows, "layers", "f32")
    figure, axes = pyplot.subplots(figsize=(11, 5))
    series = [n for n in ("onednn", "torch", *CALLS)
              if any(n in by_name(rows, "layers", "f32", p) for p in problems)]
    for i, name in enumerate(series):
        heights = [by_name(rows, "layers", "f32", p)[name]["min_ms"]
                   for p in problems]
        axes.bar([x + i * 0.8 / len(series) for x in range(len(problems))],
                 heights, 0.8 / len(series), label=name)
    axes.set_xticks([x + 0.35 for x in range(len(problems))],
                    [labels.get(p, p) for p in problems])
    axes.set_ylabel("milliseconds per backward, f32, batch 16")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return True


def write_report(rows, layers, folder):
    """Writes report.json, report.md and, if possible, report.png."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = {expand(problem): label for label, problem in layers.items()}
    (folder / "report.json").write_text(json.dumps(rows, indent=1), "utf-8")
    parts = [f"# Calls against their floors\n\n{machine()}.\n"]
    for part in ("layers", "batch", "apart"):
        for dtype in ("f32", "bf16"):
            parts.append(layer_tables(rows, labels, part, dtype))
    parts += [tiny_table(rows), clients_table(rows)]
    text = "\n".join(filter(None, parts))
    (folder / "report.md").write_text(text, "utf-8")
    plot(rows, labels, folder / "report.png")
    print(text)


def expand(problem):
    """Returns a problem string as rpc_ratio prints it: 2-D, with a number for each axis."""
    tokens = []
    for token in problem.split("_"):
        letter = token.rstrip("0123456789")
        if letter in ("i", "k", "s", "d", "p"):
            token = f"{letter}{token[len(letter):]}x{token[len(letter):]}"
        tokens.append(token)
    return "_".join(tokens)
