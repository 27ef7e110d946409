"""The commands of `trimtab`, each one call into the configuration."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import typer
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from trimtab import __version__
from trimtab.cli import show
from trimtab.cli.audit import audit, parity
from trimtab.cli.check import check_laws
from trimtab.cli.compare import compare
from trimtab.cli.convert import convert
from trimtab.cli.demo import demo
from trimtab.cli.doctor import doctor, remedy_for
from trimtab.cli.explain import explanation, metric_rows
from trimtab.cli.lab_claims import lab
from trimtab.cli.theirs import explain_file, own_or_theirs
from trimtab.cli.train import report, train_command
from trimtab.cli.write import write_file
from trimtab.config.algebra import Correction
from trimtab.config.files import to_yaml
from trimtab.config.presets import BYPASS, PRESETS, Preset
from trimtab.config.training import Train
from trimtab.config.visible import on_one_line
from trimtab.config.words import as_written
from trimtab.errors import ConfigError, ConfigWarning, TrimtabError

UsageError: Any = typer.BadParameter.__base__
"""What typer raises of arguments; some versions bring a click of their own."""


class Commands(TyperGroup):
    """The group of commands. An error of ours is one message and exit code 2, a doubt is a note, an interruption is silent."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments; none at all ask for help, which is no error."""
        with _visible_errors():
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
    said: set[str] = set()

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
        elif str(message) not in said:
            said.add(str(message))
            show.note(str(message))

    return showwarning


app = typer.Typer(
    cls=Commands,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


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
  trimtab check --list                                the laws a loss has to hold; trimtab check verl asks its own
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


@app.command(
    epilog="""Examples:

\b
  trimtab presets
  trimtab presets --json"""
)
def presets(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: every preset with its settings and names.")
    ] = False,
) -> None:
    """List the named corrections.

    Each with its meaning, its parameters and their defaults, and where it comes from.
    """
    if as_json:
        show.put_raw(
            json.dumps([_preset_facts(each) for each in PRESETS.values()], indent=2, ensure_ascii=False) + "\n"
        )
        return
    show.put(_narrow_table() if show.is_narrow() else _wide_table())
    plain = ", ".join(name for name, each in PRESETS.items() if not each.two_policies)
    show.put(
        "",
        f"{BYPASS}NAME compares current with behavior, without proximal log-probs; every preset has that form but {plain}.",
        "More: trimtab explain NAME [parameter=value…]",
    )


def _wide_table() -> Table:
    rows = [(each.name, each.meaning, parameters(each), each.source) for each in PRESETS.values()]
    return show.table(("NAME", "MEANING", "PARAMETERS", "SOURCE"), rows)


def _narrow_table() -> Table:
    """The same with the source under the meaning."""
    rows = [
        (each.name, "\n".join(parameters(each).split()), Text.assemble(each.meaning, "\n", (each.source, "dim"), "\n"))
        for each in PRESETS.values()
    ]
    return show.table(("NAME", "PARAMETERS", "MEANING"), rows)


def parameters(preset: Preset) -> str:
    """The parameters of a preset with their defaults, as they are typed."""
    return " ".join(
        f"{name}={'null' if value is None else as_written(value)}" for name, value in preset.parameters.items()
    )


def _preset_facts(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "meaning": preset.meaning,
        "parameters": preset.parameters,
        "source": preset.source,
        "called": preset.called,
        "bypass": f"{BYPASS}{preset.name}" if preset.two_policies else None,
        "correction": preset().settings(),
    }


def _presets_from(start: str) -> list[str]:
    """For the shell: presets that begin so."""
    return [name for name in PRESETS if name.startswith(start)]


@app.command(
    epilog="""Examples:

\b
  trimtab explain icepop
  trimtab explain geo-rs+token-mis token_upper=2.0
  trimtab explain bypass-geo-rs lower=0.999 upper=1.001
  trimtab explain rule.yaml gates.0.upper=1.05 weight.upper=null
  trimtab explain kpop --yaml > rule.yaml
  trimtab explain --from skyrl rule.yaml
  trimtab explain --from verl run.yaml --set kl_loss_coef=0.001
  trimtab explain --metrics"""
)
def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE",
            help="A preset (see `trimtab presets`) or a file of settings.",
            autocompletion=_presets_from,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="key=value", help="Parameters of the preset, or dotted keys of the file (gates.0.upper=2)."
        ),
    ] = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="Print only the YAML of the correction.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="List the divergences a gate can test.")] = False,
    framework: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="NAME", help="The framework the file is written for. Recognised if you leave it out."
        ),
    ] = None,
    documented: Annotated[
        bool,
        typer.Option(
            "--documented", help="A framework's file: read what its documentation promises, where the code differs."
        ),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="A framework's file: print every remark in full, and where ours departs.")
    ] = False,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A framework's file: set one of its keys on top; repeatable."),
    ] = None,
) -> None:
    """Explain a correction: words, formulas, examples.

    Shows what each gate tests and what happens outside its bounds, what a token weighs, a few tokens worked by hand, and what each
    framework calls it. Numbers are read as in YAML: 1e-4 is a number, null leaves a bound open.

    The file can also be a framework's: YAML, TOML, JSON, a launch script (.sh) or a Python script. Nothing in it is run. You see what
    it computes, then what is wrong with that, the worst first. If it leaves something open that matters, say it with --set. If a part
    cannot be read, the rest is explained and the exit code is 3.
    """
    if metrics:
        show.put(
            show.table(("METRIC", "DIRECTION", "FORMULA", "ON-POLICY", "MEANING"), metric_rows()),
            "",
            "ℓ = log_r, r = e^ℓ; p and q: probability under the target and under the base of the pair, by default "
            "proximal/behavior.",
        )
        return
    if name is None:
        raise ConfigError("explain needs a preset or a FILE.yaml, got neither. `trimtab presets` lists the names.")
    rule = None if framework is not None else own_or_theirs(name, changes or [])
    if rule is None:
        explain_file(name, framework, documented, sets or [], everything)
        return
    if yaml:
        show.put_raw(to_yaml(rule))
        return
    show.put(*explanation(rule, name, changes or []))


@app.command(
    epilog="""Examples:

\b
  trimtab schema
  trimtab schema -o correction.schema.json
  trimtab schema train -o train.schema.json

In the first line of a YAML file, editors with a YAML language server then complete and check it:

\b
  # yaml-language-server: $schema=correction.schema.json"""
)
def schema(
    of: Annotated[
        Literal["correction", "train"], typer.Argument(help="What to describe: a correction, or a training run.")
    ] = "correction",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write here instead of to stdout.")
    ] = None,
) -> None:
    """Print the JSON schema of a correction or a run.

    For completion and checking in editors, and for tools that write corrections.
    """
    described = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **(Correction if of == "correction" else Train).model_json_schema(),
    }
    text = json.dumps(described, indent=2, ensure_ascii=False) + "\n"
    if output is None:
        show.put_raw(text)
    else:
        write_file(output, text)


app.command(
    epilog="""Examples:

\b
  trimtab convert run.yaml --to areal
  trimtab convert --from skyrl run.yaml --to verl --nearest
  trimtab convert --from verl run.yaml --check > rule.yaml
  trimtab convert --from slime launch.sh
  trimtab convert --from areal --to areal --in-place --dry-run configs/"""
)(convert)

app.command(
    epilog="""Examples:

\b
  trimtab compare verl:run.yaml areal:grpo.yaml
  trimtab compare run.yaml geo-rs+token-tis"""
)(compare)

app.command(
    "check",
    epilog="""Examples:

\b
  trimtab check --list
  trimtab check verl
  trimtab check trl --law masked --law padding --scripts counterexamples
  trimtab check my_module:my_loss --like verl
  trimtab check my_module:my_loss --rule 'token-tis upper=2.0' --set clip=0.2
  trimtab check --advantages my_module:my_estimator --markdown""",
)(check_laws)

app.command(
    "train",
    epilog="""Examples:

\b
  trimtab train
  trimtab train backend=lockstep rollout.max_staleness=8 correction=off
  trimtab train examples/gsm8k.yaml model.path=Qwen/Qwen2.5-0.5B-Instruct
  trimtab train --resume runs/chain-0001""",
)(train_command)

app.command(
    epilog="""Examples:

\b
  trimtab demo
  trimtab demo --seed 3"""
)(demo)

app.command(
    epilog="""Examples:

\b
  trimtab report runs/chain-0001
  trimtab report runs/chain-0001 runs/chain-0002 -o compare.html
  trimtab report runs/chain-0001 --charts figures"""
)(report)

app.command(
    epilog="""Examples:

\b
  trimtab audit logs/train_data_step12.jsonl
  trimtab audit dumps/ --from skyrl --rule verl:run.yaml --html audit.html
  trimtab audit batch.parquet --columns tokens=ids,trained=mask,behavior=q,proximal=p
  trimtab audit rollouts.jsonl --model checkpoints/step-12 --fail-on found
  trimtab audit runs/chain-0001 --watch"""
)(audit)

app.command(
    epilog="""Examples:

\b
  trimtab parity vllm.jsonl hf.jsonl --max-k3 1e-3 --max-outside 0.05
  trimtab parity rollouts.jsonl checkpoints/step-0"""
)(parity)

app.add_typer(lab, name="lab")

app.command(
    epilog="""Examples:

\b
  trimtab doctor"""
)(doctor)
