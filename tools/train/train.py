#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains models/tiny on one GPU and writes it as a Hugging Face folder.

    python3 tools/train/fetch_corpus.py
    python3 tools/train/make_tokenizer.py models/tiny
    python3 tools/train/train.py --out models/tiny

Every row of a batch is <|begin|> and the next 1,023 tokens of the shuffled training documents, which end in <|end|>; half of
the rows begin at a paragraph, and a few hold chat turns cut from the same documents. Muon moves the matrices, AdamW the rest, and the rate falls to zero. The
weights of the best validation score are kept.
"""
import argparse
import json
import math
import pathlib
import random
import re
import time

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from make_tokenizer import ASSISTANT, BEGIN, END, PAD, USER
from tiny_model import CONFIG, TinyModel, to_hf

HERE = pathlib.Path(__file__).resolve().parent
WINDOW = 1024


def read_part(part):
    return json.loads((HERE / f"corpus/{part}.json").read_text())


def encode(tokenizer, texts):
    return [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]


def chat_documents(documents, seed):
    """Turns cut from narrative paragraphs: the user opens a passage, the assistant goes on with it."""
    rng = random.Random(seed)
    chats = []
    for source, _, text in documents:
        if source in ("kjv", "devil", "treasury"):
            continue
        for block in text.split("\n\n"):
            sentences = re.split(r"(?<=[.!?;])\s+", block)
            for at in range(0, len(sentences) - 3, 8):
                turns, i = [], at
                for _ in range(rng.choice((1, 1, 2))):
                    n = rng.randint(2, 4)
                    reply = " ".join(sentences[i + 1:i + 1 + n])
                    if len(reply) > 40 and len(sentences[i]) < 300:
                        turns.append((sentences[i], reply))
                    i += 1 + n
                if turns and rng.random() < 0.5:
                    chats.append(turns)
    rng.shuffle(chats)
    return chats


def chat_stream(tokenizer, chats, limit):
    texts = [s for turns in chats for turn in turns for s in turn]
    ids = iter(encode(tokenizer, texts))
    stream = []
    for turns in chats:
        stream.append(BEGIN)
        for _ in turns:
            stream += [USER] + next(ids) + [ASSISTANT] + next(ids) + [END]
        if len(stream) > limit:
            break
    return stream


class Data:
    def __init__(self, tokenizer, seed, device, chat_share):
        documents = read_part("train")
        random.Random(seed).shuffle(documents)
        ids = encode(tokenizer, [t for _, _, t in documents])
        self.stream = torch.tensor([i for d in ids for i in d + [END]], dtype=torch.int32, device=device)
        chat = chat_stream(tokenizer, chat_documents(documents, seed), 2_000_000)
        self.chat = torch.tensor(chat, dtype=torch.int32, device=device)
        ends = [i for i in range(tokenizer.get_vocab_size()) if i == END or tokenizer.decode([i]).endswith("\n\n")]
        self.paragraphs = torch.isin(self.stream.cpu(), torch.tensor(ends, dtype=torch.int32)).nonzero()[:, 0] + 1
        self.rng = torch.Generator().manual_seed(seed)
        self.chat_share, self.device = chat_share, device
        self.order = torch.empty(0, dtype=torch.long)

    def rows(self, n):
        """Starts of the next rows: every pass shifts the grid of windows and shuffles it."""
        while len(self.order) < n:
            shift = torch.randint(0, WINDOW, (1,), generator=self.rng)
            starts = torch.arange(0, len(self.stream) - 2 * WINDOW, WINDOW - 1)
            self.order = torch.cat([self.order, shift + starts[torch.randperm(len(starts), generator=self.rng)]])
        taken, self.order = self.order[:n], self.order[n:]
        return torch.where(torch.rand(n, generator=self.rng) < 0.5, self.snapped(taken), taken)

    def snapped(self, starts):
        """The next paragraph's start, where one is near."""
        at = torch.searchsorted(self.paragraphs, starts).clamp(max=len(self.paragraphs) - 1)
        near = self.paragraphs[at]
        return torch.where((near - starts < WINDOW // 2) & (near < len(self.stream) - WINDOW), near, starts)

    def batch(self, n):
        chats = int(n * self.chat_share)
        span = torch.arange(WINDOW)
        text = self.stream[(self.rows(n - chats)[:, None] + span).to(self.device)]
        at = torch.randint(0, len(self.chat) - WINDOW, (chats,), generator=self.rng)
        targets = torch.cat([text, self.chat[(at[:, None] + span).to(self.device)]]).long()
        begin = torch.full((n, 1), BEGIN, device=self.device)
        return torch.cat([begin, targets[:, :-1]], 1), targets


def windows(ids):
    """<|begin|> and 1,023 tokens a window, one after another; every token is scored once, none across windows."""
    step = WINDOW - 1
    return [[BEGIN] + ids[i:i + step] for i in range(0, len(ids), step)]


@torch.no_grad()
def nats(model, ids, batch=32):
    """Total negative log-likelihood of the tokens, by the windows above."""
    rows = windows(ids)
    device = model.embed.weight.device
    table = torch.full((len(rows), WINDOW), END)
    for i, row in enumerate(rows):
        table[i, :len(row)] = torch.tensor(row)
    lengths = torch.tensor([len(r) for r in rows], device=device)
    total = torch.zeros((), dtype=torch.float64, device=device)
    for i in range(0, len(rows), batch):
        x = table[i:i + batch].to(device)
        with torch.autocast(device.type, torch.bfloat16):
            loss, _ = model(x[:, :-1], x[:, 1:])
        keep = torch.arange(1, WINDOW, device=device) < lengths[i:i + batch, None]
        total += (loss.view(len(x), -1) * keep).double().sum()
    return total.item()


def bits_per_byte(model, tokenizer, documents):
    """By source and over all bytes; each document is scored on its own."""
    model.eval()
    nats_by, bytes_by = {}, {}
    for source, _, _ in documents:
        nats_by.setdefault(source, [])
    for source in nats_by:
        text = "\n\n".join(t for s, _, t in documents if s == source)
        bytes_by[source] = len(text.encode())
        nats_by[source] = nats(model, encode(tokenizer, [text])[0])
    model.train()
    by_source = {s: nats_by[s] / math.log(2) / bytes_by[s] for s in nats_by}
    return sum(nats_by.values()) / math.log(2) / sum(bytes_by.values()), by_source


def orthogonalise(g):
    """Newton-Schulz iteration toward the nearest semi-orthogonal matrices of a stack."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return x.mT if tall else x


class Muon:
    """Momentum whose step is made orthogonal, for the hidden matrices; equal shapes go through as one stack."""

    def __init__(self, parameters, momentum=0.95, decay=0.1):
        self.groups = {}
        for p in parameters:
            self.groups.setdefault(p.shape[-2:], []).append(p)
        self.momentum, self.decay = momentum, decay
        self.state = {s: torch.zeros_like(self.stack(ps)) for s, ps in self.groups.items()}
        self.orthogonalise = torch.compile(orthogonalise)

    @staticmethod
    def stack(tensors):
        return torch.cat([t.reshape(-1, *t.shape[-2:]) for t in tensors])

    @torch.no_grad()
    def step(self, rate):
        for shape, parameters in self.groups.items():
            g = self.stack([p.grad for p in parameters])
            buffer = self.state[shape].lerp_(g, 1 - self.momentum)
            update = self.orthogonalise(g.lerp(buffer, self.momentum)).float() * max(1.0, shape[0] / shape[1]) ** 0.5
            at = 0
            for p in parameters:
                n = p.numel() // (shape[0] * shape[1])
                p.mul_(1 - rate * self.decay).add_(update[at:at + n].view_as(p), alpha=-rate)
                at += n


def rate_at(progress, warm=0.03, flat=0.4):
    if progress < warm:
        return progress / warm
    return 1.0 if progress < flat else max(1.0 - progress, 0.0) / (1.0 - flat)


def train(args, config):
    device = torch.device("cuda")
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    began = time.time()
    data = Data(tokenizer, args.seed, device, args.chat_share)
    valid = read_part("valid")
    model = TinyModel(config, args.dropout).to(device)
    matrices = [p for n, p in model.named_parameters() if p.dim() > 1 and "embed" not in n and "gate_weight" not in n]
    others = [p for p in model.parameters() if all(p is not m for m in matrices)]
    adam = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    muon = Muon(matrices, decay=args.decay)
    compiled = torch.compile(model)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(data.stream)} tokens, {len(data.chat)} of chat, "
          f"prepared in {time.time() - began:.1f} s", flush=True)
    best, kept, curve, began = math.inf, None, [], time.time()
    for step in range(args.steps):
        rate = rate_at(step / args.steps)
        ids, targets = data.batch(args.batch)
        with torch.autocast("cuda", torch.bfloat16):
            losses, loads = compiled(ids, targets)
        loss = losses.mean()
        loss.backward()
        adam.param_groups[0]["lr"] = args.adam_rate * rate
        adam.step()
        muon.step(args.muon_rate * rate)
        model.update_biases(loads, 1e-3 * min(1.0, 3 * rate))
        model.zero_grad(set_to_none=True)
        if step == 20:
            torch.cuda.synchronize()
            began = time.time()
        if (step + 1) % args.every == 0 or step + 1 == args.steps:
            score, by_source = bits_per_byte(model, tokenizer, valid)
            passes = (step + 1) * args.batch * WINDOW / len(data.stream)
            spread = (loads.max(1).values / loads.mean(1)).tolist()
            print(f"[{args.name}] step {step + 1} {time.time() - began:.0f} s, passes {passes:.1f}, loss {loss.item():.3f}, valid {score:.4f} "
                  f"{ {s: round(v, 3) for s, v in by_source.items()} } peak load {[round(s, 2) for s in spread]}", flush=True)
            curve.append([step + 1, round(passes, 2), round(score, 5)])
            if score < best:
                best, kept = score, {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(kept)
    score, by_source = bits_per_byte(model, tokenizer, read_part("heldout"))
    print(f"[{args.name}] best valid {best:.4f}; held out {score:.4f} { {s: round(v, 3) for s, v in by_source.items()} }", flush=True)
    options = {k: v for k, v in vars(args).items() if k not in ("out", "tokenizer", "record", "config")}
    return model, dict(options=options, seconds=round(time.time() - began, 1), curve=curve, valid=best, heldout=score,
                       heldout_by_source=by_source)


def write_model(model, config, out):
    from transformers import DeepseekV3Config, GenerationConfig
    out.mkdir(parents=True, exist_ok=True)
    hf = DeepseekV3Config(**config, bos_token_id=BEGIN, eos_token_id=END, pad_token_id=PAD, dtype="bfloat16",
                          architectures=["DeepseekV3ForCausalLM"])
    hf.save_pretrained(out)
    GenerationConfig(bos_token_id=BEGIN, eos_token_id=END, pad_token_id=PAD, do_sample=True, temperature=1.0, top_p=0.95).save_pretrained(out)
    save_file(to_hf(model), out / "model.safetensors", metadata={"format": "pt"})


@torch.no_grad()
def verify(model, out):
    """`transformers` reads the folder and agrees with this module, both in fp32 on the rounded weights."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    torch.set_float32_matmul_precision("highest")
    model = model.eval()
    for p in model.parameters():
        p.copy_(p.bfloat16().float())
    theirs = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).cuda().eval()
    ids = AutoTokenizer.from_pretrained(out)(read_part("valid")[0][2][:3000], return_tensors="pt").input_ids.cuda()
    a, b = model(ids), theirs(ids).logits
    print(f"transformers agrees: {ids.shape[1]} tokens, relative difference {((a - b).norm() / b.norm()).item():.2e}, "
          f"largest {(a - b).abs().max().item():.2e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True, help="folder of tokenizer.json")
    parser.add_argument("--record", type=pathlib.Path, default=pathlib.Path("train_record.json"))
    parser.add_argument("--name", default="tiny")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--muon-rate", type=float, default=0.02)
    parser.add_argument("--adam-rate", type=float, default=3e-3)
    parser.add_argument("--chat-share", type=float, default=0.05)
    parser.add_argument("--config", type=json.loads, default={}, help="JSON of changes to the configuration")
    args = parser.parse_args()
    config = CONFIG | args.config
    model, record = train(args, config)
    if args.out:
        args.record.write_text(json.dumps(record) + "\n")
        write_model(model, config, args.out)
        verify(model, args.out)


if __name__ == "__main__":
    main()
