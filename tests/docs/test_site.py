"""The site: long pages come apart without losing a link, and every public name has a docstring, an example that runs and a page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import trimtab

ROOT = Path(__file__).parents[2]
pytest.importorskip("mkdocs", reason="the extra [site] is not installed")
sys.path[:0] = [str(ROOT / "docs/site"), str(ROOT / "docs")]

import check  # noqa: E402
import reference  # noqa: E402
from split import Sources  # noqa: E402

from trimtab import errors  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONG = """# Rules

Before. [first](#one), [both](other.md#there), [code](../examples/a.py).

## one+two

See [two](#two) and [deep](#deep-down).

```python
## no heading
x = "[no](#two)"
```

### Deep down

Below.

## two

[up](rules.md), [one](rules.md#onetwo).
"""


@pytest.fixture
def sources() -> Sources:
    found = Sources()
    found.add_split("rules", "docs/rules.md", LONG)
    found.add("other.md", "docs/other.md", "# Other\n\n## There\n\n[deep](rules.md#deep-down) ![picture](x.svg)")
    found.places["examples/a.py"] = "examples/a.py"
    return found


def test_a_section_becomes_a_page_with_its_headings_raised(sources: Sources):
    assert list(sources.pages) == ["rules/index.md", "rules/one-two.md", "rules/two.md", "other.md"]
    text = sources.pages["rules/one-two.md"]
    assert text.startswith("# one+two\n")
    assert "\n## Deep down\n" in text
    assert "\n## no heading\n" in text  # a comment in code stays what it is


def test_links_follow_what_was_split(sources: Sources):
    one = sources.linked("rules/one-two.md")
    assert "[two](two.md)" in one
    assert "[deep](#deep-down)" in one
    assert '"[no](#two)"' in one
    assert "[up](index.md), [one](one-two.md)" in sources.linked("rules/two.md")
    assert "[both](../other.md#there), [code](../examples/a.py)" in sources.linked("rules/index.md")
    assert "[deep](rules/one-two.md#deep-down) ![picture](x.svg)" in sources.linked("other.md")


def test_every_public_name_has_a_docstring_an_example_and_a_page():
    shown = reference.examples(PAGES)
    for name in reference.public_names():
        assert (getattr(trimtab, name).__doc__ or "").strip(), f"{name} has no docstring"
        assert name in shown, f"{name} is in no block of the docs"
        assert "::: trimtab." in reference.name_page(name, shown[name])


def test_every_error_has_a_remedy():
    page = (ROOT / "docs/errors.md").read_text()
    for each in reference.error_classes():
        assert f"| `{each.__name__}`" in page
    assert errors.TrimtabError in reference.error_classes()


def test_the_glossary_has_at_most_thirty_words():
    rows = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("| ")]
    assert 20 <= len(rows) - 2 <= 30


def test_every_command_and_every_key_has_a_place():
    pages = reference.commands()
    assert {"trimtab", "trimtab explain", "trimtab audit", "trimtab lab thresholds"} <= set(pages)
    assert "--from" in pages["trimtab explain"]
    assert "geo_mask_high" in reference.keys_page()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<a href="none.html">x</a>', "links to none.html"),
        ('<a href="index.html#none">x</a>', "links to index.html#none"),
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
        ('<img src="//cdn.example/x.png">', "loads //cdn.example/x.png"),
    ],
)
def test_a_broken_link_or_a_request_elsewhere_is_told(tmp_path: Path, body: str, said: str):
    (tmp_path / "index.html").write_text(
        f'<h1 id="top">x</h1><a href="#top">up</a><a href="https://a.example">out</a>{body}'
    )
    number, wrong = check.broken(tmp_path)
    assert number == 1
    assert len(wrong) == 1
    assert said in wrong[0]
