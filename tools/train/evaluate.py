#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `transformers` makes of models/tiny: held-out bits a byte, sample texts, and the answers the engine is held to.

    python3 tools/train/evaluate.py models/tiny --text tests/golden/text/heldout.txt --out OUT

Writes OUT/heldout.json, OUT/samples_TEMPERATURE.json, OUT/tiny_expected.safetensors and OUT/tiny_expected.json.
Scoring: the file is encoded whole, without special tokens; <|begin|> and 1,023 tokens make a window, one after another, the
last one shorter; within a window every token but <|begin|> is scored; bits a byte = nats / ln 2 / bytes of the file.
"""
import argparse
import json
import math
import pathlib

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

WINDOW = 1024
PROMPT_TOKENS, GREEDY_STEPS = 48, 64
SAMPLES, SAMPLE_TOKENS, SAMPLE_SEED = 20, 200, 2026
TEMPERATURES, TOP_P = (0.8, 0.9, 1.0), 0.95
CHAT = "Call me Ishmael, and tell me of the sea."


def load(folder, dtype, device):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    model.set_experts_implementation("eager")
    return model.eval().to(device)


@torch.no_grad()
def total_nats(model, ids, begin, batch=16):
    rows = [[begin] + ids[i:i + WINDOW - 1] for i in range(0, len(ids), WINDOW - 1)]
    total = 0.0
    for i in range(0, len(rows), batch):
        group = rows[i:i + batch]
        x = torch.full((len(group), WINDOW), begin)
        for j, row in enumerate(group):
            x[j, :len(row)] = torch.tensor(row)
        x = x.to(model.device)
        logits = model(x[:, :-1], use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten(), reduction="none")
        for j, row in enumerate(group):
            total += loss.view(len(group), -1)[j, :len(row) - 1].double().sum().item()
    return total


def heldout(folder, tokenizer, text, device):
    ids = tokenizer.encode(text, add_special_tokens=False)
    record = dict(window=WINDOW, tokens=len(ids), bytes=len(text.encode()), transformers=transformers.__version__)
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        nats = total_nats(load(folder, dtype, device), ids, tokenizer.bos_token_id)
        record[name] = dict(nats=nats, nats_per_token=nats / len(ids), perplexity=math.exp(nats / len(ids)),
                            bits_per_byte=nats / math.log(2) / record["bytes"])
    return record


@torch.no_grad()
def greedy(model, ids):
    ids, out, margins = list(ids), [], []
    for _ in range(GREEDY_STEPS):
        top = model(torch.tensor([ids]), use_cache=False).logits[0, -1].float().topk(2)
        out.append(top.indices[0].item())
        margins.append(round((top.values[0] - top.values[1]).item(), 6))
        ids.append(out[-1])
    return out, margins


@torch.no_grad()
def expected(folder, tokenizer, text, out):
    ids = [tokenizer.bos_token_id] + tokenizer.encode(text, add_special_tokens=False)[:PROMPT_TOKENS - 1]
    tensors, record = {}, dict(ids=ids, transformers=transformers.__version__)
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        model = load(folder, dtype, "cpu")
        tensors[f"logits_{name}"] = model(torch.tensor([ids]), use_cache=False).logits[0].contiguous()
        record[f"greedy_{name}"], record[f"greedy_{name}_margins"] = greedy(model, ids)
    save_file(tensors, out / "tiny_expected.safetensors")
    (out / "tiny_expected.json").write_text(json.dumps(record) + "\n")


@torch.no_grad()
def sample(model, ids, tokenizer, rows, tokens, temperature, at_least=0):
    x = torch.tensor([ids] * rows, device=model.device)
    torch.manual_seed(SAMPLE_SEED)
    out = model.generate(x, attention_mask=torch.ones_like(x), do_sample=True, temperature=temperature, top_p=TOP_P, top_k=0,
                         min_new_tokens=at_least, max_new_tokens=tokens, pad_token_id=tokenizer.pad_token_id)
    return [dict(ids=r[len(ids):].tolist(), text=tokenizer.decode(r[len(ids):], skip_special_tokens=True)) for r in out]


def samples(folder, tokenizer, text, device, out):
    """Texts from <|begin|> alone at some temperatures; `natural` holds as many stretches of the held-out text."""
    model = load(folder, torch.float32, device)
    record = {str(t): sample(model, [tokenizer.bos_token_id], tokenizer, SAMPLES, SAMPLE_TOKENS, t, SAMPLE_TOKENS)
              for t in TEMPERATURES}
    ids = tokenizer.encode(text, add_special_tokens=False)
    stretches = [ids[i:i + SAMPLE_TOKENS] for i in range(0, len(ids) - SAMPLE_TOKENS, len(ids) // SAMPLES)][:SAMPLES]
    record["natural"] = [dict(ids=s, text=tokenizer.decode(s)) for s in stretches]
    for name, texts in record.items():
        (out / f"samples_{name}.json").write_text(json.dumps(texts, ensure_ascii=False, indent=1) + "\n")
    chat = tokenizer.apply_chat_template([dict(role="user", content=CHAT)], add_generation_prompt=True, tokenize=True,
                                         return_dict=False)
    print("chat ids", chat)
    for reply in sample(model, chat, tokenizer, 4, 100, 0.8):
        print("CHAT", repr(reply["text"]))
    for one in record["0.8"][:6]:
        print("SAMPLE", repr(one["text"][:400]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    text = args.text.read_text()
    record = heldout(args.model, tokenizer, text, device)
    (args.out / "heldout.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record))
    expected(args.model, tokenizer, text, args.out)
    samples(args.model, tokenizer, text, device, args.out)
    print("encode adds", tokenizer.encode("A ship"), type(tokenizer).__name__)


if __name__ == "__main__":
    main()
