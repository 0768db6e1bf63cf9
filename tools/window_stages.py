"""Where the time of a window goes, from a trace that `hearth ... --trace-window FILE` wrote: for
every kind of span how many there are, what they take in all and each, and how the host's and the
card's steps of a layer follow each other.

usage: window_stages.py TRACE...
"""

import collections
import json
import statistics
import sys


def read(path):
    """Title, and the spans of each lane in order of time; times in microseconds."""
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    lanes = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            event["end"] = event["ts"] + event["dur"]
            lanes[event["cat"]].append(event)
    return trace["otherData"]["title"], lanes


def print_lane(lane, spans):
    kinds = collections.defaultdict(list)
    for span in spans:
        kinds[span["name"]].append(span["dur"])
    print(f"{lane:<12}{'':<18} {'count':>6} {'sum us':>10} {'mean':>8} {'median':>8} {'most':>8}")
    for name, durations in kinds.items():
        print(f"{'':<12}{name:<18} {len(durations):>6} {sum(durations):>10.1f} "
              f"{statistics.mean(durations):>8.2f} {statistics.median(durations):>8.2f} "
              f"{max(durations):>8.2f}")


def by_layer(spans, name):
    return {span["args"]["layer"]: span for span in spans
            if span["name"] == name and "layer" in span["args"]}


# A step of a layer: from an end of one side's span to an end of the other's.
STEPS = (
    ("card has routes -> host knows", "GPU", "dense", "end", "CPU passes", "first half", "end"),
    ("card has routes -> host has planned", "GPU", "dense", "end", "CPU passes", "plan", "end"),
    ("host has planned -> card's experts done", "CPU passes", "plan", "end", "GPU", "experts",
     "end"),
    ("CPU's experts done -> card goes on", "CPU passes", "CPU's experts", "end", "GPU",
     "wait for outputs", "end"),
    ("second half begins -> card goes on", "CPU passes", "second half", "ts", "GPU",
     "wait for outputs", "end"),
)


def print_steps(lanes):
    for what, from_lane, from_name, from_end, to_lane, to_name, to_end in STEPS:
        begins = by_layer(lanes[from_lane], from_name)
        ends = by_layer(lanes[to_lane], to_name)
        gaps = [ends[layer][to_end] - begins[layer][from_end] for layer in begins if layer in ends]
        if gaps:
            print(f"  {what:<42} median {statistics.median(gaps):>8.2f} us of {len(gaps)}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        title, lanes = read(path)
        print(f"== {title}")
        for lane in sorted(lanes):
            print_lane(lane, lanes[lane])
        print_steps(lanes)


if __name__ == "__main__":
    main()
