#!/usr/bin/env python3
"""Prints the distinct problems of networks, one problem string per line.

    network_problems.py --batch=1,16 FILE.jsonl...

The files have the published cases' format. The output is for compute_ratio --problems;
network_problems.txt has the problems of ResNet-50 and MobileNet.
"""
import argparse
import json

KINDS = {False: "conv", True: "convtranspose"}
# A token, the record's key, and the default, which is omitted.
AXES = (("i", "in", None), ("k", "k", None), ("s", "stride", 1),
        ("d", "dilation", 1), ("pb", "pad_begin", 0), ("pe", "pad_end", 0),
        ("op", "output_padding", 0))


def problem_string(record, batch):
    """Returns the problem of `record` with another batch."""
    text = (f"{KINDS[record['transposed']]}{record['ndim']}d_n{batch}"
            f"_c{record['ic']}_o{record['oc']}_g{record['groups']}")
    for token, key, default in AXES:
        values = record.get(key, [])
        if any(value != default for value in values):
            text += f"_{token}" + "x".join(map(str, values))
    return text


def main():
    """Prints each problem once, in the files' order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", default="1")
    parser.add_argument("file", nargs="+")
    options = parser.parse_args()
    problems = {}
    for batch in options.batch.split(","):
        for path in options.file:
            with open(path, encoding="utf-8") as lines:
                for line in lines:
                    problems[problem_string(json.loads(line), int(batch))] = 1
    print("\n".join(problems))


if __name__ == "__main__":
    main()
