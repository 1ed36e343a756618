#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the rows of `latent bench attention --json` as a table: a line a case and protocol, a column a backend,
and each backend's speed relative to the last one's."""

import json
import sys


def main():
    bench = json.load(open(sys.argv[1], encoding="utf-8"))
    cases = {}
    for row in bench["rows"]:
        key = (row["heads"], row["q_len"], row["batch"], row.get("padded", 0), row["len"], row["lengths"], row["protocol"])
        cases.setdefault(key, {})[row["backend"]] = row
    names = list(dict.fromkeys(row["backend"] for row in bench["rows"]))
    ceilings = bench["ceilings"]
    print(f"{ceilings['machine']}; read ceiling {ceilings['read_bytes_per_s'] * 1e-12:.3f} TB/s; commit {bench['commit']}")
    head = f"{'heads':>5} {'q':>2} {'batch':>5} {'padded':>6} {'len':>6} {'lengths':<7} {'protocol':<9} {'floor us':>9}"
    print(head + "".join(f" | {name:>10} us  share   plan" for name in names) + " | against the last")
    for key, rows in cases.items():
        first = next(iter(rows.values()))
        line = f"{key[0]:>5} {key[1]:>2} {key[2]:>5} {key[3]:>6} {key[4]:>6} {key[5]:<7} {key[6]:<9} {first['floor_us']:>9.1f}"
        for name in names:
            row = rows.get(name)
            if row is None:
                line += " | " + " " * 27
                continue
            line += f" | {row['us']:>13.2f} {100 * row['share_of_floor']:>5.1f}% {row['plan_us']:>6.1f}"
        if names[-1] in rows:
            last = rows[names[-1]]
            line += " | " + " ".join(f"{last['us'] / rows[n]['us']:.3f}x" if n in rows else "-" for n in names[:-1])
        worst = max(row["difference_to_first"] for row in rows.values())
        print(line + f"  diff {worst:.1e}")


if __name__ == "__main__":
    main()
