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
        "What stands under a False mask changes nothing.",
        "Prompts, padding and tool output move the policy, or one NaN among them ends the run.",
        step_questions.MASKED,
    ),
    Law(
        "votes",
        "A row removed from the loss does not vote in baselines.",
        "One filtered outlier turns the advantages of its siblings around.",
        row_questions.VOTES,
    ),
    Law(
        "groups",
        "Group statistics follow the group's identity, for every group size, 1 included.",
        "Answers are judged against answers to another prompt, or against nothing.",
        row_questions.GROUPS,
    ),
    Law(
        "splits",
        "Splitting the batch into micro-batches changes no gradient.",
        "The learning rate depends on the size of the micro-batch, and so on the GPU.",
        step_questions.SPLITS,
    ),
    Law(
        "empty",
        "A rank or micro-batch with nothing to train on takes part like any other.",
        "The others wait in a collective that never comes, or the step is NaN.",
        step_questions.EMPTY,
    ),
    Law(
        "padding",
        "Padding, in rows or in columns, weighs nothing.",
        "The step shrinks with the padding, and what is logged is not what was trained.",
        step_questions.PADDING,
    ),
    Law(
        "alignment",
        "Index i is the same token in every tensor, and a missing log-prob is missing.",
        "Tokens are weighed by their neighbours' ratios, or by one made up.",
        step_questions.ALIGNMENT,
    ),
    Law(
        "weight",
        "The weight applied is the one named: right policies, level and sign, once.",
        "The run is not corrected as its settings say.",
        step_questions.WEIGHT,
    ),
    Law(
        "versions",
        "Data is as old as the oldest weights that sampled it; what is not known is not new.",
        "Stale data passes for fresh.",
        row_questions.VERSIONS,
    ),
)

LAWS: dict[str, Law] = {law.name: law for law in _ALL}
"""Every law by its name."""
