"""The commands of `trimtab`: their names, and where each is found when it is called."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, NamedTuple, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from trimtab import __version__
from trimtab.cli import briefly, show
from trimtab.config.visible import on_one_line
from trimtab.errors import ConfigWarning, TrimtabError

UsageError: Any = typer.BadParameter.__base__
"""What typer raises of arguments; some versions bring a click of their own."""


class CommandRow(NamedTuple):
    """Where a command stands, its first line, and its examples."""

    home: str
    summary: str
    examples: str
    is_brief: bool = False
    """Whether it reads a few settings and ends."""


COMMANDS = {
    "presets": CommandRow(
        "presets:presets",
        "List the named corrections.",
        """Examples:

\b
  trimtab presets
  trimtab presets --json""",
        is_brief=True,
    ),
    "explain": CommandRow(
        "explain:explain",
        "Explain a correction: words, formulas, examples.",
        """Examples:

\b
  trimtab explain icepop
  trimtab explain geo-rs+token-mis token_upper=2.0
  trimtab explain bypass-geo-rs lower=0.999 upper=1.001
  trimtab explain rule.yaml gates.0.upper=1.05 weight.upper=null
  trimtab explain kpop --yaml > rule.yaml
  trimtab explain --from skyrl rule.yaml
  trimtab explain --from verl run.yaml --set kl_loss_coef=0.001
  trimtab explain --metrics
  trimtab explain --metric verl:rollout_corr/k3_kl
  trimtab explain --metric train/ois""",
        is_brief=True,
    ),
    "schema": CommandRow(
        "schema:schema",
        "Print the JSON schema of a correction or a run.",
        """Examples:

\b
  trimtab schema
  trimtab schema -o correction.schema.json
  trimtab schema train -o train.schema.json

In the first line of a YAML file, editors with a YAML language server then complete and check it:

\b
  # yaml-language-server: $schema=correction.schema.json""",
        is_brief=True,
    ),
    "convert": CommandRow(
        "convert:convert",
        "Convert a framework's settings to another framework's, or to ours.",
        """Examples:

\b
  trimtab convert run.yaml --to areal
  trimtab convert --from skyrl run.yaml --to verl --nearest
  trimtab convert --from verl run.yaml --check > rule.yaml
  trimtab convert --from slime launch.sh
  trimtab convert --from areal --to areal --in-place --dry-run configs/""",
    ),
    "compare": CommandRow(
        "compare:compare",
        "Say whether two files of settings compute the same thing.",
        """Examples:

\b
  trimtab compare verl:run.yaml areal:grpo.yaml
  trimtab compare run.yaml geo-rs+token-tis""",
        is_brief=True,
    ),
    "check": CommandRow(
        "check:check_laws",
        "Test a loss against nine laws, and show the smallest batch that breaks one.",
        """Examples:

\b
  trimtab check --list
  trimtab check verl
  trimtab check trl --law masked --law padding --scripts counterexamples
  trimtab check my_module:my_loss --like verl
  trimtab check my_module:my_loss --rule 'token-tis upper=2.0' --set clip=0.2
  trimtab check --advantages my_module:my_estimator --markdown""",
    ),
    "train": CommandRow(
        "train:train_command",
        "Train a policy with asynchronous rollouts and a correction.",
        """Examples:

\b
  trimtab train
  trimtab train backend=lockstep rollout.max_staleness=8 correction=off
  trimtab train examples/gsm8k.yaml model.path=Qwen/Qwen2.5-0.5B-Instruct
  trimtab train --resume runs/chain-0001""",
    ),
    "demo": CommandRow(
        "demo:demo",
        "Train twice on stale samples, without and with a correction.",
        """Examples:

\b
  trimtab demo
  trimtab demo --seed 3""",
    ),
    "report": CommandRow(
        "train:report",
        "Write the report of a run, or one page that compares several; or say what logs of other trainers show.",
        """Examples:

\b
  trimtab report runs/chain-0001
  trimtab report runs/chain-0001 runs/chain-0002 -o compare.html
  trimtab report runs/chain-0001 --charts figures
  trimtab report wandb/run-abc/run-abc.wandb
  trimtab report train.log --from verl -o page.html --fail-on certain""",
    ),
    "audit": CommandRow(
        "audit:audit",
        "Find out why sampler and trainer disagree on a saved batch, and what each correction would do.",
        """Examples:

\b
  trimtab audit logs/train_data_step12.jsonl
  trimtab audit dumps/ --from skyrl --rule verl:run.yaml --html audit.html
  trimtab audit batch.parquet --columns tokens=ids,trained=mask,behavior=q,proximal=p
  trimtab audit rollouts.jsonl --model checkpoints/step-12 --fail-on found
  trimtab audit runs/chain-0001 --watch""",
    ),
    "parity": CommandRow(
        "audit:parity",
        "Compare two scorings of the same tokens, as a check before the first step.",
        """Examples:

\b
  trimtab parity vllm.jsonl hf.jsonl --max-k3 1e-3 --max-outside 0.05
  trimtab parity rollouts.jsonl checkpoints/step-0""",
    ),
    "lab": CommandRow(
        "lab_claims:lab",
        "Run the same training for many corrections and say which survive.",
        """""",
    ),
    "doctor": CommandRow(
        "doctor:doctor",
        "Check this machine and this installation.",
        """Examples:

\b
  trimtab doctor""",
    ),
}
"""Commands in the order of the help page. A module is imported when its command is named: `--help` needs none of them."""


class Commands(TyperGroup):
    """The group of commands. An error of ours is one message and exit code 2, a doubt is a note, an interruption is silent."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        named = {name: TyperCommand(name, help=row.summary) for name, row in COMMANDS.items()}
        self.commands = {**named, **self.commands}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that was named, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS and COMMANDS[name].is_brief:
            ctx.with_resource(briefly())
        return name, command if name not in COMMANDS else load_command(name), rest

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments; none at all ask for help, which is no error."""
        with briefly(), _visible_errors():
            return super().parse_args(ctx, args or ["--help"])

    def invoke(self, ctx: Any) -> Any:
        """Run a command and flush what it printed."""
        with warnings.catch_warnings():
            warnings.simplefilter("always", ConfigWarning)
            warnings.showwarning = _note_doubts(warnings.showwarning)
            try:
                with _visible_errors():
                    result = super().invoke(ctx)
                sys.stdout.flush()
            except TrimtabError as error:
                show.complain(str(error))
                raise typer.Exit(2) from None
            except ModuleNotFoundError as error:
                from trimtab.installed import remedy_for

                if (remedy := remedy_for(error.name or "")) is None:
                    raise
                show.complain(f"{ctx.invoked_subcommand} needs {error.name}. {remedy}")
                raise typer.Exit(2) from None
            except KeyboardInterrupt:
                raise typer.Exit(130) from None
            except BrokenPipeError:  # the reader has seen enough; nothing is left to say, also not at shutdown
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(141) from None
            return result


@contextmanager
def _visible_errors() -> Generator[None]:
    """What typer says of an argument it does not know, with that argument shown and not obeyed."""
    try:
        yield
    except UsageError as error:
        error.message = on_one_line(error.message)
        raise


def _note_doubts(shown: Any) -> Any:
    """A `warnings.showwarning` that prints each doubt once as a note and leaves other warnings as they were."""
    noted: set[str] = set()

    def showwarning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, ConfigWarning):
            shown(message, category, filename, lineno, file, line)
        elif str(message) not in noted:
            noted.add(str(message))
            show.note(str(message))

    return showwarning


app = typer.Typer(
    cls=Commands,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def load_command(name: str) -> Any:
    """A command as typer runs it."""
    row = COMMANDS[name]
    module, _, thing = row.home.partition(":")
    found = getattr(import_module(f"trimtab.cli.{module}"), thing)
    holder = typer.Typer(rich_markup_mode=None, add_completion=False)
    holder.callback()(lambda: None)  # with one, a single command is a command of a group too
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name, epilog=row.examples)(found)
    return typer.main.get_group(holder).commands[name]


def _print_version(wanted: bool | None) -> None:
    if wanted:
        show.put_raw(f"trimtab {__version__}\n")
        raise typer.Exit


@app.callback(
    epilog="""Examples:

\b
  trimtab presets                                     every named correction
  trimtab explain geo-rs+token-mis token_upper=2.0    what it does to a token
  trimtab explain run.sh                              what your framework's file really computes
  trimtab convert --from verl run.yaml --to areal     the same in another framework's keys
  trimtab check --list                                the laws every loss should keep; `trimtab check verl` tests verl's
  trimtab audit train_data_step5.jsonl                why sampler and trainer disagree in a saved batch
  trimtab demo                                        two runs on stale samples, compared on one page
  trimtab train                                       a run on this machine, with a report
  trimtab schema -o correction.schema.json            completion in your editor
  trimtab doctor                                      what works on this machine"""
)
def trimtab(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = None,
) -> None:
    """Off-policy correction for reinforcement learning of language models.

    trimtab measures, corrects and explains the gap between the model that sampled the data and the model being trained on it. A
    correction decides which tokens stay (gates) and how much each counts (weight).

    presets, explain, convert, compare and schema work on settings and load no torch. check calls losses on small batches. demo, train and
    lab train a policy.
    """
