"""docs/logged-names.md, from the rows of trimtab/logged/names.txt."""

from __future__ import annotations

from itertools import groupby

from tables import table

from trimtab.dialects.registry import SIGNATURES
from trimtab.logged.names import LoggedName, logged_names

INTRO = """<!-- Written by docs/generate.py from src/trimtab/logged/names.txt; edit there. -->
# Names in a framework's log

What a name in a log is: its formula, over which pair of policies and which tokens, what it hides, and the metric of
[ours](metrics.md) that it is. The same on the command line, for one name:

```console
$ trimtab explain --metric verl:rollout_corr/kl
$ trimtab explain --metric train/ois
```

Prefixes such as `train/` and suffixes such as `/avg` may be left on or off; a name of several frameworks gets a line for each, an unknown
one the nearest. [`trimtab report LOG`](logs.md) reads whole logs by these rows.

r is the ratio of the pair and ℓ its logarithm, ρ the ratio of the loss, w the weight; `*` stands for what settings fill. Under *ours* a `−`
means the opposite sign, `1 −` the complement, `≈` that pair, mask or a bound differ, `log ≥` that the logarithm bounds it from above. A row
without a line was read in the file that is named; the lines of six installed releases are checked by `make parity`.

"""


def logged_page() -> str:
    """The whole page: the names that mislead first, then every framework."""
    rows = [row for row in logged_names() if row.trap]
    parts = [INTRO, "## Names that mislead\n\n"]
    parts.append(
        table(("name", "what it is", "why it misleads"), [(_named(row), row.formula, row.trap) for row in rows])
    )
    for framework, each in groupby(logged_names(), lambda row: row.framework):
        parts.append(_section(framework, list(each)))
    return "".join(parts)


def _named(row: LoggedName) -> str:
    return f"{row.framework} `{row.name}`"


def _section(framework: str, rows: list[LoggedName]) -> str:
    title = "TRL, AsyncGRPOTrainer" if framework == "trl-async" else SIGNATURES[framework].title
    usual = rows[0]
    head = f"\n## {title}\n\nAs of {usual.version}. Unless a row says otherwise: {usual.pair}; over {usual.mask}; logged: {usual.when}.\n\n"
    lines = [
        (f"`{row.name}`", _formula(row, usual), row.hides, f"`{row.ours}`" if row.ours else "", _source(row))
        for row in rows
    ]
    return head + table(("name", "formula", "hides", "ours", "source"), lines)


def _formula(row: LoggedName, usual: LoggedName) -> str:
    """The formula, with what differs from the section's head."""
    pairs = ((row.pair, usual.pair), (row.mask, usual.mask), (row.when, usual.when))
    other = [mine for mine, theirs in pairs if mine not in (theirs, "none")]
    return f"{row.formula} ({'; '.join(other)})" if other else row.formula


def _source(row: LoggedName) -> str:
    return row.source.rpartition("/")[2]
