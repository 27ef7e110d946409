"""Look at the built site: links that lead nowhere, requests to other hosts, and whether search finds what people type.

`python docs/site/check.py build/site` prints the counts; exit code 1 if anything is wrong.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

QUERIES = {"icepop": "icepop", "geo_mask_high": "geo_mask_high", "why is my ESS low": "ESS"}
"""What is typed, and a word that the first results have to show."""
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("link", "href")}
OUTSIDE_CSS = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])(?:https?:)?//")


@dataclass
class Page(HTMLParser):
    """The links, the ids and what is loaded, of one page."""

    text: str
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take what the tag refers to."""
        given = {name: value or "" for name, value in attrs}
        self.ids.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in ("canonical", "alternate", "edit"):
            return
        self.loads += [given[name] for kind, name in LOADED if kind == tag and name in given]

    def __hash__(self) -> int:
        return id(self)


def broken(folder: Path) -> tuple[int, list[str]]:
    """How many pages there are, and the links and requests that are wrong."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    wrong: list[str] = []
    for path, page in pages.items():
        place = path.relative_to(folder)
        wrong += [f"{place} loads {each}" for each in page.loads if is_outside(each)]
        wrong += [
            f"{place} links to {each}" for each in [*page.links, *page.loads] if not leads(each, path, folder, pages)
        ]
    for path in folder.rglob("*.css"):
        if OUTSIDE_CSS.search(path.read_text(encoding="utf-8")):
            wrong.append(f"{path.relative_to(folder)} loads from another host")
    return len(pages), wrong


def is_outside(target: str) -> bool:
    """Whether loading it is a request to another host."""
    return target.startswith("//") or urlsplit(target).scheme in ("http", "https")


def leads(target: str, path: Path, folder: Path, pages: dict[Path, Page]) -> bool:
    """Whether a link has something at its end; one that begins with / begins at the root of the site."""
    parts = urlsplit(target)
    if parts.scheme or target.startswith("//") or target in ("", "#", "."):
        return True
    base = folder if parts.path.startswith("/") else path.parent
    meant = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
    meant = meant / "index.html" if meant.is_dir() else meant
    if not meant.is_file():
        return False
    return not parts.fragment or meant not in pages or unquote(parts.fragment) in pages[meant].ids


def missed(folder: Path) -> list[str] | None:
    """Queries without a fitting result; None where there is no browser."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return (
        None
        if browser is None
        else [query for query, word in QUERIES.items() if not finds(browser, folder, query, word)]
    )


def finds(browser: str, folder: Path, query: str, word: str) -> bool:
    """Whether a page opened from disk shows the word among the results of a query."""
    page = f"{(folder / 'index.html').resolve().as_uri()}?q={quote(query)}"
    with tempfile.TemporaryDirectory() as profile:
        options = (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--virtual-time-budget=30000",
        )
        ran = subprocess.run([browser, *options, "--dump-dom", page], capture_output=True, text=True, check=False)
    results = ran.stdout.partition("md-search-result__list")[2].partition("</ol>")[0]
    return word.lower() in re.sub(r"<[^>]+>", "", results).lower()


def main(arguments: list[str]) -> int:
    """Print what was found."""
    folder = Path(arguments[0]).resolve()
    number, wrong = broken(folder)
    print(f"{number} pages, {len(wrong)} broken links or requests to other hosts")
    for each in wrong:
        print(f"  {each}")
    unfound = missed(folder)
    print(
        "search was not tried: no Chromium"
        if unfound is None
        else f"search: {len(QUERIES) - len(unfound)} of {len(QUERIES)} queries"
    )
    for each in unfound or ():
        print(f"  nothing for {each!r}")
    return int(bool(wrong or unfound))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
