#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much sampled texts repeat themselves, and how much of them stands in the training text.

    python3 tools/train/check_samples.py SAMPLES.json

SAMPLES.json is a list of {"ids": [...], "text": "..."}. Prints the share of 4-grams of tokens that repeat an earlier one of
the same sample, and the share of the samples' 100-byte windows that occur in tools/train/corpus/train.json; exits 1 when
the first is over 2 % or the second is a fifth or more.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
GRAM, SPAN = 4, 100


def repeats(ids):
    grams = [tuple(ids[i:i + GRAM]) for i in range(len(ids) - GRAM + 1)]
    return len(grams) - len(set(grams)), len(grams)


def copied(text, corpus):
    """A window of 100 bytes covers a whole aligned half of it, so only those near a half that occurs are looked up."""
    half = SPAN // 2
    near = [corpus.find(text[i:i + half]) >= 0 for i in range(0, len(text) - half + 1, half)]
    hits = 0
    total = max(len(text) - SPAN + 1, 0)
    for i in range(total):
        first = -(-i // half)
        if first < len(near) and near[first] and corpus.find(text[i:i + SPAN]) >= 0:
            hits += 1
    return hits, total


def main():
    samples = json.loads(pathlib.Path(sys.argv[1]).read_text())
    corpus = "\n\n".join(t for _, _, t in json.loads((HERE / "corpus/train.json").read_text())).encode()
    again, grams, hits, spans = 0, 0, 0, 0
    for sample in samples:
        a, g = repeats(sample["ids"])
        h, s = copied(sample["text"].encode(), corpus)
        again, grams, hits, spans = again + a, grams + g, hits + h, spans + s
    print(f"{len(samples)} samples: {100 * again / grams:.2f} % of 4-grams repeat, "
          f"{100 * hits / spans:.2f} % of 100-byte windows occur in the corpus")
    raise SystemExit(again > 0.02 * grams or hits >= 0.2 * spans)


if __name__ == "__main__":
    main()
