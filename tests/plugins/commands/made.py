"""A model of a few thousand weights with a tokenizer that `AutoTokenizer` loads, and eight prompts of unequal length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from transformers import Qwen2Tokenizer

from tests.plugins.tiny import EOS, PAD, VOCABULARY, save_model

LONGER = {28: "####Ġ5", 29: "####Ġ6", 30: "####Ġ7"}
"""Tokens that read as an answer of gsm8k, for whose environment some are right; and answers of as many tokens are not all of one length."""
NEWLINE = {31: "Ċ"}
"""One token, as in any Qwen: verl's agent loop asks for it, and for `<|im_end|>`."""


def save(path: Path) -> Path:
    """The tiny Qwen2; its tokens are the letters, LONGER and NEWLINE."""
    save_model(path)
    letters = {chr(ord("a") + number): number + 2 for number in range(26)}
    words = {"<pad>": PAD, "<|im_end|>": EOS} | letters | {word: number for number, word in (LONGER | NEWLINE).items()}
    assert len(words) == VOCABULARY
    tokenizer = Qwen2Tokenizer(vocab=words, merges=[], pad_token="<pad>", eos_token="<|im_end|>", unk_token="<pad>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(path)
    return path


def prompts(rows: int = 8) -> list[str]:
    """Three to five letters each, all different."""
    return ["".join(chr(ord("a") + (7 * row + place) % 26) for place in range(3 + row % 3)) for row in range(rows)]


def save_rows(path: Path, **columns: Any) -> Path:
    """The prompts as messages, numbered, with the same further columns in each row, as a table that trainers read."""
    rows = [
        {"prompt": [{"role": "user", "content": text}], "extra_info": {"index": number}, **columns}
        for number, text in enumerate(prompts())
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path
