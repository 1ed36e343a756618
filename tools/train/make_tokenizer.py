#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the byte-level BPE tokenizer of models/tiny on tools/train/corpus/train.json and writes its files.

    python3 tools/train/make_tokenizer.py OUT
"""
import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
SPECIAL = ["<|begin|>", "<|end|>", "<|pad|>", "<|user|>", "<|assistant|>"]
BEGIN, END, PAD, USER, ASSISTANT = range(5)
VOCABULARY = 4096
WORDS = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
         r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] + '\n\n' }}"
    "{% elif message['role'] == 'user' %}{{ '<|user|>' + message['content'] }}"
    "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>' + message['content'] + eos_token }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")


def train_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    # transformers 5 reads add_bos_token only where there is no tokenizer.json: both say the same here.
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[BEGIN]} $A", pair=f"{SPECIAL[BEGIN]} $A {SPECIAL[BEGIN]} $B:1", special_tokens=[(SPECIAL[BEGIN], BEGIN)])
    return tokenizer


def write_files(tokenizer, out):
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    config = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=SPECIAL[BEGIN], eos_token=SPECIAL[END],
                  pad_token=SPECIAL[PAD], add_bos_token=True, add_eos_token=False, clean_up_tokenization_spaces=False,
                  model_max_length=2048, chat_template=TEMPLATE)
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    texts = [t for _, _, t in json.loads((HERE / "corpus/train.json").read_text())]
    tokenizer = train_tokenizer(texts)
    write_files(tokenizer, pathlib.Path(sys.argv[1]))
    size = sum(len(t.encode()) for t in texts[::50])
    tokens = sum(len(e.ids) for e in tokenizer.encode_batch(texts[::50]))
    print(f"{tokenizer.get_vocab_size()} tokens, {size / tokens:.3f} bytes a token on training text")


if __name__ == "__main__":
    main()
