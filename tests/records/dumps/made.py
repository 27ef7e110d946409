"""One small batch, and files of it as each framework's source writes them.

Two answers to one prompt, the first with a token that a tool gave:

    A  tokens   11  12 | 21    22    23        B  11  12 | 31    32
       trained   .   .    T     .     T            .   .    T     T
       behavior           -0.5  none  -1.5                 -0.25  -2.0
       proximal           -0.625 -3.0 -1.25                -0.375 -1.75
       advantage  0.5                              -0.5
       reward     1.0                               0.0
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

PROMPT = [11, 12]
RESPONSES = [[21, 22, 23], [31, 32]]
MASKS = [[1, 0, 1], [1, 1]]
BEHAVIOR = [[-0.5, 0.0, -1.5], [-0.25, -2.0]]
"""0.0 where the tool spoke: what frameworks write for a token that nobody sampled."""
PROXIMAL = [[-0.625, -3.0, -1.25], [-0.375, -1.75]]
ADVANTAGES = [0.5, -0.5]
REWARDS = [1.0, 0.0]
Change = Callable[[list[float]], list[float]]


@dataclass(frozen=True)
class Rollouts:
    """What a framework writes: prompts and responses token by token; masks and log-probs are those of the responses."""

    prompts: list[list[int]]
    responses: list[list[int]]
    masks: list[list[int]]
    behavior: list[list[float]]
    proximal: list[list[float]]
    advantages: list[float]
    rewards: list[float]
    groups: list[int]

    @property
    def rows(self) -> range:
        return range(len(self.responses))

    @property
    def tokens(self) -> list[list[int]]:
        return [prompt + response for prompt, response in zip(self.prompts, self.responses, strict=True)]

    def behind_prompts(self, columns: list[list[Any]], fill: Any = 0) -> list[list[Any]]:
        """Columns of the responses with the prompts' places in front."""
        return [[fill] * len(prompt) + list(row) for prompt, row in zip(self.prompts, columns, strict=True)]


SMALL = Rollouts([PROMPT, PROMPT], RESPONSES, MASKS, BEHAVIOR, PROXIMAL, ADVANTAGES, REWARDS, [0, 0])


def same(values: list[float]) -> list[float]:
    return values


def shifted(values: list[float]) -> list[float]:
    """Each value one token late: the commonest fault there is."""
    return [values[-1], *values[:-1]]


def jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def padded(rows: list[list[Any]], width: int, fill: Any = 0, left: bool = False) -> list[list[Any]]:
    return [[fill] * (width - len(row)) + row if left else row + [fill] * (width - len(row)) for row in rows]


def full(rows: list[list[Any]], fill: Any = 0) -> list[list[Any]]:
    """Response columns with the prompt's places in front."""
    return [[fill] * len(PROMPT) + list(row) for row in rows]


def nemo_rl(folder: Path, change: Change = same, of: Rollouts = SMALL) -> Path:
    """grpo.py: every value a list of one, per-token lists padded to the widest row, 0.0 for what vLLM did not say."""
    wide = 1 + max(map(len, of.tokens))
    behavior = padded(of.behind_prompts([change(row) for row in of.behavior], 0.0), wide, 0.0)
    scored = [
        [0.0, *[-4.0] * (len(prompt) - 1), *row] for prompt, row in zip(of.prompts, of.proximal, strict=True)
    ]  # the trainer scores the prompt too
    tokens, proximal, masks = (
        padded(of.tokens, wide),
        padded(scored, wide, 0.0),
        padded(of.behind_prompts(of.masks), wide),
    )
    return jsonl(
        folder / "train_data_step7.jsonl",
        [
            {
                "content": [["<p>", f"answer {i}"]],
                "rewards": [of.rewards[i]],
                "input_lengths": [len(of.tokens[i])],
                "token_ids": [tokens[i]],
                "token_loss_mask": [masks[i]],
                "sample_loss_mask": [1.0],
                "advantages": [[of.advantages[i]] * wide],
                "generation_logprobs": [behavior[i]],
                "prev_logprobs": [proximal[i]],
                "idx": i,
            }
            for i in of.rows
        ],
    )


def nemo_rl_stream(folder: Path, change: Change = same) -> Path:
    """train_data_dump.py: the same shape, trimmed to input_lengths, with step and sample_id."""
    return jsonl(
        folder / "train_data_step7.jsonl",
        [
            {
                "idx": i,
                "step": 7,
                "sample_id": [f"s{i}"],
                "input_lengths": [2 + len(RESPONSES[i])],
                "metadata": [{"prompt_idx": 0}],
                "token_ids": [PROMPT + RESPONSES[i]],
                "token_loss_mask": [full(MASKS)[i]],
                "advantages": [[ADVANTAGES[i]] * (2 + len(RESPONSES[i]))],
                "generation_logprobs": [full([change(row) for row in BEHAVIOR], 0.0)[i]],
                "prev_logprobs": [full(PROXIMAL, 0.0)[i]],
                "sample_loss_mask": [1.0],
                "rewards": [REWARDS[i]],
                "prompt_ids": [PROMPT],
            }
            for i in range(2)
        ],
    )


def prime_export(folder: Path, change: Change = same) -> Path:
    """token_export.py: trainer_logprobs are shifted right, so that the first belongs to the sequence packed before."""
    return jsonl(
        folder / "token_exports" / "step_7" / "rank_0.jsonl",
        [
            {
                "schema_version": 1,
                "step": 7,
                "rank": 0,
                "token_ids": PROMPT + RESPONSES[i],
                "loss_mask": [bool(each) for each in full(MASKS)[i]],
                "advantages": [ADVANTAGES[i]] * (2 + len(RESPONSES[i])),
                "rewards": [REWARDS[i]] * (2 + len(RESPONSES[i])),
                "inference_logprobs": full([change(row) for row in BEHAVIOR], 0.0)[i],
                "trainer_logprobs": [-9.0, -4.0, *PROXIMAL[i]],
            }
            for i in range(2)
        ],
    )


def _episode(i: int, change: Change) -> dict[str, Any]:
    """graph.py: a node per message with the tokens it adds; log-probs compact over True masks."""
    values = change(BEHAVIOR[i])
    nodes: list[dict[str, Any]] = [{"parent": None, "token_ids": PROMPT, "mask": [False, False], "logprobs": []}]
    for token, mask, value in zip(RESPONSES[i], MASKS[i], values, strict=True):
        parent = len(nodes) - 1
        nodes.append(
            {"parent": parent, "token_ids": [token], "mask": [bool(mask)], "logprobs": [value] if mask else []}
        )
    trace = {"id": f"t{i}", "nodes": nodes, "info": {}, "rewards": {"exact": {"score": REWARDS[i], "weight": None}}}
    return {"id": f"e{i}", "group": {"id": "g"}, "traces": [trace]}


def prime_traces(folder: Path, change: Change = same) -> Path:
    """monitors/file: episodes as they came, what the trainer found beside them; null where its loss did not act."""
    streams = [
        [None, None, *(value if mask else None for value, mask in zip(*pair, strict=True))]
        for pair in zip(PROXIMAL, MASKS, strict=True)
    ]
    updates = [
        {"version": 1, "trace_id": f"t{i}", "info": {}, "branches": [{"index": 0, "trainer_logprobs": streams[i]}]}
        for i in range(2)
    ]
    stale = {"version": 1, "trace_id": "t0", "branches": [{"index": 0, "trainer_logprobs": [None, None, -9, None, -9]}]}
    scores = [
        {"version": 1, "trace_id": f"t{i}", "branches": [{"index": 0, "advantages": [ADVANTAGES[i]] * len(streams[i])}]}
        for i in range(2)
    ]
    traces = folder / "monitors" / "file" / "traces"
    jsonl(traces / "annotations" / "trainer.jsonl", [stale, *updates])
    jsonl(traces / "annotations" / "orchestrator.jsonl", scores)
    jsonl(traces / "annotations" / "trainer.index.jsonl", [{"trace_id": "t0", "chunk": 0, "offset": 0, "info": {}}])
    return jsonl(traces / "stream.jsonl", [_episode(i, change) for i in range(2)])


def verifiers(folder: Path, change: Change = same) -> Path:
    return jsonl(folder / "traces.jsonl", [_episode(i, change)["traces"][0] for i in range(2)])


def open_instruct(folder: Path, change: Change = same, of: Rollouts = SMALL) -> Path:
    """rl_utils.py: RolloutRecord."""
    return jsonl(
        folder / "run_rollouts_000000.jsonl",
        [
            {
                "step": 7,
                "sample_idx": i,
                "prompt_idx": of.groups[i],
                "prompt_tokens": of.prompts[i],
                "response_tokens": of.responses[i],
                "reward": of.rewards[i],
                "advantage": of.advantages[i],
                "finish_reason": "stop",
                "dataset": "d",
                "logprobs": change(of.behavior[i]),
            }
            for i in of.rows
        ],
    )


def slime_train(folder: Path, change: Change = same, of: Rollouts = SMALL) -> Path:
    """train_data_utils.py, format_version 2: tokens over prompt and response, the rest over the response."""
    path = folder / "train_data" / "7.pt"
    path.parent.mkdir(parents=True)
    samples = [
        {
            "rollout_position": i,
            "sample_index": i,
            "tokens": torch.tensor(of.tokens[i]),
            "response_lengths": len(of.responses[i]),
            "total_lengths": len(of.tokens[i]),
            "loss_masks": torch.tensor(of.masks[i]),
            "rewards": of.rewards[i],
            "rollout_log_probs": torch.tensor(change(of.behavior[i])),
            "log_probs": torch.tensor(of.proximal[i]),
            "advantages": torch.full((len(of.responses[i]),), of.advantages[i]),
            "truncated": 0,
        }
        for i in of.rows
    ]
    torch.save({"format_version": 2, "rollout_id": 7, "samples": samples}, path)
    return path


def slime_ranks(folder: Path, change: Change = same) -> Path:
    """actor.py before 2026: lists under each name, one file per rank; ranks of one group write the same."""
    data = {
        "tokens": [torch.tensor(PROMPT + row) for row in RESPONSES],
        "response_lengths": [len(row) for row in RESPONSES],
        "loss_masks": [torch.tensor(row) for row in MASKS],
        "rewards": REWARDS,
        "rollout_log_probs": [torch.tensor(change(row)) for row in BEHAVIOR],
        "log_probs": [torch.tensor(row) for row in PROXIMAL],
        "advantages": [torch.full((len(row),), a) for row, a in zip(RESPONSES, ADVANTAGES, strict=True)],
        "partition": 3,
    }
    for rank in range(2):
        torch.save({"rollout_id": 7, "rank": rank, "rollout_data": data}, folder / f"7_{rank}.pt")
    return folder


def slime_rollout(folder: Path, change: Change = same) -> Path:
    """rollout_data_utils.py with Sample.to_dict: plain lists."""
    samples = [
        {
            "group_index": 4,
            "index": i,
            "prompt": "<p>",
            "tokens": PROMPT + RESPONSES[i],
            "response": f"answer {i}",
            "response_length": len(RESPONSES[i]),
            "reward": REWARDS[i],
            "loss_mask": MASKS[i],
            "weight_versions": ["5", "5"] if i == 0 else ["5", "6"],
            "rollout_log_probs": change(BEHAVIOR[i]),
            "status": "completed",
            "metadata": {},
        }
        for i in range(2)
    ]
    torch.save({"rollout_id": 7, "samples": samples}, folder / "7.pt")
    return folder / "7.pt"


def miles_loss(folder: Path, change: Change = same) -> Path:
    """debug_dump.py: three policies of the response."""
    samples = [
        {
            "index": i,
            "total_length": 2 + len(RESPONSES[i]),
            "response_length": len(RESPONSES[i]),
            "train_log_probs": torch.tensor(PROXIMAL[i]) - 0.125,
            "old_log_probs": torch.tensor(PROXIMAL[i]),
            "advantages": torch.full((len(RESPONSES[i]),), ADVANTAGES[i]),
            "local_loss_mask": torch.tensor(MASKS[i]).float(),
            "rollout_log_probs": torch.tensor(change(BEHAVIOR[i])),
        }
        for i in range(2)
    ]
    for rank in range(2):  # of one tensor-parallel group
        whole = {"rank": rank, "call": 0, "samples": samples, "ppo_kl": torch.zeros(()), "finite": {"ppo_kl": True}}
        torch.save(whole, folder / f"rank_{rank}_call_0.pt")
    return folder


def miles_dashboard(folder: Path, change: Change = same) -> Path:
    """debug_data.py: masks and log-probs over the response."""
    table = pa.table(
        {
            "sample_index": [0, 1],
            "tokens": [PROMPT + row for row in RESPONSES],
            "loss_mask": MASKS,
            "rollout_log_probs": [change(row) for row in BEHAVIOR],
        }
    )
    pq.write_table(table, folder / "rollout_7.parquet")
    return folder / "rollout_7.parquet"
