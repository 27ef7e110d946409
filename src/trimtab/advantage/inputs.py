"""Whether the tensors of a call fit together; everything here runs before any arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from trimtab.core.inputs import check_device
from trimtab.core.layout import Layout, Packed
from trimtab.errors import InputError

NEEDED = {
    "group": "Pass one id per sequence.",
    "values": "Pass the critic's value of the state before each token.",
    "baselines": "Pass the reward of the greedy answer to each sequence's prompt.",
    "bootstrap": "Pass the critic's value of the state after each sequence's last token.",
    "ended": "trimtab.ended(tokens, mask, eos) finds it.",
    "rewards": "Pass one per sequence, or one per token.",
    "teacher": "Pass the teacher's log-prob of each sampled token.",
    "proximal": "Pass the trainer's log-probs at the start of the step.",
    "behavior": "Pass the sampler's log-probs.",
    "squares": "Pass Σπ² over the vocabulary at each token.",
    "current": "Pass the log-probs of the policy as it is now.",
}


def row_count(layout: Layout, mask: Tensor) -> int:
    """How many sequences there are."""
    return len(layout.cu_seqlens) - 1 if isinstance(layout, Packed) else len(mask)


def check_not_empty(rows: int, process_group: ProcessGroup | None) -> None:
    """A batch needs a row; a rank of a larger batch does not."""
    if rows == 0 and process_group is None:
        raise InputError("A batch needs at least one sequence, got 0 rows. Skip the step, or pass the process_group.")


def check_rows(name: str, value: Tensor | None, rows: int, device: torch.device) -> None:
    """One value per sequence."""
    if value is not None and tuple(value.shape) != (rows,):
        raise InputError(f"{name} needs one value per sequence ({rows},), got shape {tuple(value.shape)}.")
    if value is not None:
        check_device(name, value, device)


def check_tokens(name: str, value: Tensor | None, mask: Tensor) -> None:
    """One value per token."""
    if value is not None and value.shape != mask.shape:
        raise InputError(
            f"{name} needs the shape of mask {tuple(mask.shape)}, got {tuple(value.shape)}. One value per token, same index everywhere."
        )
    if value is not None:
        check_device(name, value, mask.device)


def check_either(name: str, value: Tensor | None, rows: int, mask: Tensor) -> None:
    """One value per sequence, or one per token."""
    if value is not None and value.shape != mask.shape and tuple(value.shape) != (rows,):
        raise InputError(
            f"{name} needs one value per sequence ({rows},) or per token {tuple(mask.shape)}, got shape {tuple(value.shape)}."
        )
    if value is not None:
        check_device(name, value, mask.device)


def check_columns(name: str, value: Tensor, rows: int, columns: int, device: torch.device) -> None:
    """Several values per sequence."""
    if tuple(value.shape) != (rows, columns):
        raise InputError(
            f"{name} needs one row per sequence and one column per weight ({rows}, {columns}), got shape {tuple(value.shape)}."
        )
    check_device(name, value, device)


def check_given(who: str, name: str, value: Tensor | None) -> None:
    """A tensor that cannot be left out."""
    if value is None:
        raise InputError(f"{who} needs {name}, got None. {NEEDED[name]}")


def check_unread(who: str, name: str, value: Tensor | None) -> None:
    """A tensor that would be silently ignored."""
    if value is not None:
        raise InputError(f"{who} needs no {name}, got a tensor. It does not read it; drop it.")


def check_group_ids(group: Tensor | None, count: int | None, rows: int, device: torch.device) -> None:
    """One whole number per sequence, below the count if there is one."""
    if group is None:
        if count is not None:
            raise InputError(f"groups={count} needs group, got None. Pass the index of each sequence's group.")
        return
    if tuple(group.shape) != (rows,):
        raise InputError(
            f"group needs one id per sequence ({rows},), got shape {tuple(group.shape)}. An id names a prompt, not a token: "
            "take it once per row."
        )
    if group.dtype == torch.bool or group.is_floating_point() or group.is_complex():
        raise InputError(f"group needs whole numbers, got {group.dtype}. Number the prompts.")
    check_device("group", group, device)
    if count is not None and group.device.type == "cpu" and rows and not torch.compiler.is_compiling():
        low, high = group.aminmax()
        if low < 0 or high >= count:
            raise InputError(
                f"group with groups={count} needs ids from 0 to {count - 1}, got {int(low)} … {int(high)}. "
                "Leave groups out to have them numbered."
            )
