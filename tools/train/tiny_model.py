# SPDX-License-Identifier: Apache-2.0
"""The architecture of models/tiny as a compact torch module: DeepSeek-V3's maths, every expert computed densely and masked
by its routing weight, which at this size is faster than gathering tokens by expert. `to_hf` gives the checkpoint's names.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = dict(
    vocab_size=4096, hidden_size=256, intermediate_size=768, moe_intermediate_size=192, num_hidden_layers=4,
    num_attention_heads=4, num_key_value_heads=4, q_lora_rank=128, kv_lora_rank=512, qk_nope_head_dim=64,
    qk_rope_head_dim=64, v_head_dim=64, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, n_group=4,
    topk_group=2, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.0, rms_norm_eps=1e-6,
    max_position_embeddings=2048, tie_word_embeddings=True, num_mtp_layers=0,
    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=512,
                         beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0))


def yarn_mscale(factor, mscale):
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def yarn_inverse_frequencies(dim, r):
    """Frequencies that turn often within the original length stay; slow ones are divided by the factor; a ramp between."""
    def turning(rotations):
        return dim * math.log(r["original_max_position_embeddings"] / (rotations * 2 * math.pi)) / (
            2 * math.log(r["rope_theta"]))
    low = max(math.floor(turning(r["beta_fast"])), 0)
    high = min(math.ceil(turning(r["beta_slow"])), dim - 1)
    ramp = ((torch.arange(dim // 2).float() - low) / max(high - low, 0.001)).clamp(0, 1)
    base = r["rope_theta"] ** (-torch.arange(0, dim, 2).float() / dim)
    return base / r["factor"] * ramp + base * (1 - ramp)


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x.float(), x.shape[-1:], self.weight.float(), 1e-6).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.nope, self.rope, self.v = (c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"],
                                                    c["v_head_dim"])
        self.rank = c["kv_lora_rank"]
        h = c["hidden_size"]
        self.q_a_proj = nn.Linear(h, c["q_lora_rank"], bias=False)
        self.q_a_layernorm = Norm(c["q_lora_rank"])
        self.q_b_proj = nn.Linear(c["q_lora_rank"], self.heads * (self.nope + self.rope), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(h, self.rank + self.rope, bias=False)
        self.kv_a_layernorm = Norm(self.rank)
        self.kv_b_proj = nn.Linear(self.rank, self.heads * (self.nope + self.v), bias=False)
        self.o_proj = nn.Linear(self.heads * self.v, h, bias=False)
        r = c["rope_parameters"]
        self.scale = (self.nope + self.rope) ** -0.5 * yarn_mscale(r["factor"], r["mscale_all_dim"]) ** 2

    def rotate(self, x, cos, sin):
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.cat([even * cos - odd * sin, odd * cos + even * sin], -1)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))).view(b, t, self.heads, -1).transpose(1, 2)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([self.rank, self.rope], -1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent)).view(b, t, self.heads, -1).transpose(1, 2)
        k_nope, v = kv.split([self.nope, self.v], -1)
        k_rope = self.rotate(k_rope[:, None], cos, sin).expand(-1, self.heads, -1, -1)
        q = torch.cat([q[..., :self.nope], self.rotate(q[..., self.nope:], cos, sin)], -1)
        k = torch.cat([k_nope, k_rope.to(k_nope.dtype)], -1)
        pad = q.shape[-1] - self.v  # flash attention wants one width
        out = F.scaled_dot_product_attention(q.to(v.dtype), k, F.pad(v, (0, pad)), is_causal=True, scale=self.scale)
        return self.o_proj(out[..., :self.v].transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, h, width):
        super().__init__()
        self.gate_proj = nn.Linear(h, width, bias=False)
        self.up_proj = nn.Linear(h, width, bias=False)
        self.down_proj = nn.Linear(width, h, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Moe(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, h, e, i = c, c["hidden_size"], c["n_routed_experts"], c["moe_intermediate_size"]
        self.gate_weight = nn.Parameter(torch.empty(e, h))
        self.register_buffer("bias", torch.zeros(e))
        self.experts_gate = nn.Parameter(torch.empty(e, i, h))
        self.experts_up = nn.Parameter(torch.empty(e, i, h))
        self.experts_down = nn.Parameter(torch.empty(e, h, i))
        self.shared_experts = Mlp(h, i * c["n_shared_experts"])

    def route(self, x):
        """Routing weights [tokens, experts]: group-limited choice by biased scores, weights from the unbiased ones."""
        c = self.c
        with torch.autocast(x.device.type, enabled=False):
            scores = (x.float() @ self.gate_weight.float().T).sigmoid()
        with torch.no_grad():
            choice = scores + self.bias
            grouped = choice.view(len(x), c["n_group"], -1)
            kept = grouped.topk(2, -1)[0].sum(-1).topk(c["topk_group"], -1)[1]
            mask = torch.zeros(len(x), c["n_group"], device=x.device).scatter(1, kept, 1.0)
            choice = grouped.masked_fill(mask[..., None] == 0, -math.inf).view_as(choice)
            ids = choice.topk(c["num_experts_per_tok"], -1)[1]
            chosen = torch.zeros_like(scores).scatter(1, ids, 1.0)
        weights = scores * chosen
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * c["routed_scaling_factor"]
        return weights, chosen.sum(0)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weights, load = self.route(flat)
        e, i, h = self.experts_gate.shape
        hidden = F.silu(F.linear(flat, self.experts_gate.view(e * i, h))) * F.linear(flat, self.experts_up.view(e * i, h))
        hidden = hidden.view(-1, e, i) * weights.to(hidden.dtype)[..., None]
        out = F.linear(hidden.view(-1, e * i), self.experts_down.permute(1, 0, 2).reshape(h, e * i))
        return out.view_as(x) + self.shared_experts(x), load


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c["hidden_size"])
        self.sparse = index >= c["first_k_dense_replace"]
        self.mlp = Moe(c) if self.sparse else Mlp(c["hidden_size"], c["intermediate_size"])

    def forward(self, x, cos, sin, dropout):
        x = x + F.dropout(self.self_attn(self.input_layernorm(x), cos, sin), dropout, self.training)
        out = self.mlp(self.post_attention_layernorm(x))
        out, load = out if self.sparse else (out, None)
        return x + F.dropout(out, dropout, self.training), load


class TinyModel(nn.Module):
    def __init__(self, c, dropout=0.0):
        super().__init__()
        self.c, self.dropout = c, dropout
        self.embed = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"])
        angles = torch.outer(torch.arange(c["max_position_embeddings"]).float(),
                             yarn_inverse_frequencies(c["qk_rope_head_dim"], c["rope_parameters"]))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.reset()

    def reset(self):
        depth = (2 * self.c["num_hidden_layers"]) ** -0.5
        for name, p in self.named_parameters():
            if p.dim() == 1:
                continue
            residual = "o_proj" in name or "down" in name
            std = 0.02 if name.startswith("embed") else p.shape[-1] ** -0.5 * (depth if residual else 1.0)
            nn.init.normal_(p, std=std)

    def forward(self, ids, targets=None):
        x = F.dropout(self.embed(ids), self.dropout, self.training)
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        loads = []
        for layer in self.layers:
            x, load = layer(x, cos, sin, self.dropout)
            if load is not None:
                loads.append(load)
        logits = F.linear(self.norm(x), self.embed.weight)
        if targets is None:
            return logits
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none"), torch.stack(loads)

    def update_biases(self, loads, rate):
        """The auxiliary-loss-free balance: an expert with less than its share of tokens gains bias, others lose it."""
        for layer, load in zip((x for x in self.layers if x.sparse), loads):
            layer.mlp.bias += rate * torch.sign(load.mean() - load)
            layer.mlp.bias -= layer.mlp.bias.mean()


def to_hf(model):
    """The tensors of a DeepseekV3ForCausalLM checkpoint: bf16, the correction bias fp32, the embedding tied."""
    out = {}
    for name, t in model.state_dict().items():
        t = t.detach().cpu()
        name = "model." + name.replace("embed.", "embed_tokens.")
        if name.endswith("mlp.bias"):
            out[name.replace("bias", "gate.e_score_correction_bias")] = t.float()
        elif name.endswith("gate_weight"):
            out[name.replace("gate_weight", "gate.weight")] = t.bfloat16()
        elif ".experts_" in name:
            head, kind = name.split(".experts_")
            out |= {f"{head}.experts.{e}.{kind}_proj.weight": t[e].bfloat16().contiguous() for e in range(len(t))}
        else:
            out[name] = t.bfloat16()
    return out
