#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much sampled texts repeat themselves, and how much of them stands in the training text.

    python3 tools/train/check_samples.py SAMPLES.json
    python3 tools/train/check_samples.py --latent build/release/latent [--model models/tiny] [--seed 1]
                                         [--temperature T]

SAMPLES.json is a list of {"ids": [...], "text": "..."}; with --latent, 20 texts of 200 tokens are sampled from <|begin|>
alone by `latent run`, with seeds from --seed on and the model's own defaults. Prints the share of 4-grams of tokens that
repeat an earlier one of the same sample, and the share of the samples' 100-byte windows that occur in
tools/train/corpus/train.json (made by fetch_corpus.py); exits 1 when the first is over 2 % or the second is a fifth or more.
"""
import argparse
import json
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
GRAM, SPAN = 4, 100
SAMPLES, TOKENS = 20, 200


def sampled(options):
    """What `latent run` writes from nothing, seed after seed."""
    heat = [] if options.temperature is None else ["--temperature", str(options.temperature)]
    for seed in range(options.seed, options.seed + SAMPLES):
        command = [options.latent, "run", options.model, "--prompt", "", "--max-tokens", str(TOKENS), "--ignore-eos",
                   "--seed", str(seed), "--json", *heat]
        answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
        yield {"ids": answer["token_ids"], "text": answer["text"]}


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("samples", nargs="?", metavar="SAMPLES.json")
    source.add_argument("--latent", help="the program to sample with")
    parser.add_argument("--model", default="models/tiny")
    parser.add_argument("--seed", type=int, default=1, help="of the first sample")
    parser.add_argument("--temperature", type=float, help="instead of the model's own")
    options = parser.parse_args()
    samples = list(sampled(options)) if options.latent else json.loads(pathlib.Path(options.samples).read_text())
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
