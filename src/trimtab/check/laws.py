"""The nine laws as values: a sentence, what happens to a training that breaks it, and the questions that find out."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.check import row_questions, step_questions
from trimtab.check.question import Question


@dataclass(frozen=True)
class Law:
    """What has to hold of every function of its kind."""

    name: str
    sentence: str
    breaks: str
    """What happens in training where it does not hold."""
    questions: tuple[Question, ...]


_ALL = (
    Law(
        "masked",
        "Values under a False mask change nothing.",
        "Prompts, padding and tool output move the policy, or one NaN among them ends the run.",
        step_questions.MASKED_QUESTIONS,
    ),
    Law(
        "votes",
        "A row removed from the loss does not vote in baselines.",
        "One filtered outlier flips the advantages of its siblings.",
        row_questions.VOTES_QUESTIONS,
    ),
    Law(
        "groups",
        "Group statistics follow the group's identity, for every group size, 1 included.",
        "Answers are compared with answers to another prompt, or with none.",
        row_questions.GROUPS_QUESTIONS,
    ),
    Law(
        "splits",
        "Splitting the batch into micro-batches changes no gradient.",
        "The effective learning rate depends on the micro-batch size, and so on the GPU.",
        step_questions.SPLITS_QUESTIONS,
    ),
    Law(
        "empty",
        "A rank or micro-batch with nothing to train on takes part like any other.",
        "The other ranks hang in a collective, or the step is NaN.",
        step_questions.EMPTY_QUESTIONS,
    ),
    Law(
        "padding",
        "Padding, in rows or in columns, has no weight.",
        "The step shrinks with the padding, and logs do not describe what was trained.",
        step_questions.PADDING_QUESTIONS,
    ),
    Law(
        "alignment",
        "Index i is the same token in every tensor, and a missing log-prob is missing.",
        "Tokens are weighted by their neighbours' ratios, or by a made-up one.",
        step_questions.ALIGNMENT_QUESTIONS,
    ),
    Law(
        "weight",
        "The weight applied is the one named: right policies, level and sign, once.",
        "The run is not corrected as its settings say.",
        step_questions.WEIGHT_QUESTIONS,
    ),
    Law(
        "versions",
        "Data is as old as the oldest weights that sampled it; unknown is not fresh.",
        "Stale data passes for fresh.",
        row_questions.VERSIONS_QUESTIONS,
    ),
)

LAWS: dict[str, Law] = {law.name: law for law in _ALL}
"""Every law by its name."""
