"""What MkDocs calls: the pages of the repository as pages of the site, long ones in parts, and what is made from the code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "docs")]

import reference  # noqa: E402
from split import Sources  # noqa: E402

FETCHED = "https://unpkg.com/iframe-worker/shim"
SPLIT = {
    "how-to": "how-to",
    "plugins": "plugins",
    "scale": "scale",
    "corrections": "corrections",
    "losses": "losses",
    "frameworks": "frameworks",
}
TITLES = {"how-to": "Recipes", "plugins": "In my trainer", "scale": "vLLM, Ray, FSDP"}
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md", "LICENSE": "licence.md",
         "SECURITY.md": "security.md", "CODE_OF_CONDUCT.md": "conduct.md"}  # fmt: skip


def add_made(found: Sources) -> None:
    """What is made from the code, and where files stand that are not Markdown."""
    shown = reference.examples([ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
    found.add("reference/index.md", "reference/index.md", reference.names_index())
    for name in reference.public_names():
        found.add(f"reference/{name}.md", f"reference/{name}.md", reference.name_page(name, shown.get(name)))
    for name, text in reference.commands().items():
        path = f"commands/{name.replace(' ', '-')}.md"
        found.add(path, path, text)
    found.add("live.md", "live.md", (ROOT / "docs/site/live.md").read_text(encoding="utf-8"))
    found.add("frameworks/options.md", "frameworks/options.md", reference.options_page())
    found.add("frameworks/keys.md", "frameworks/keys.md", reference.keys_page())
    for each in sorted((ROOT / "examples").iterdir()):
        found.places[f"examples/{each.name}"] = f"examples/{each.name}"
    for each in [*sorted((ROOT / "docs").iterdir()), *sorted((ROOT / "docs/theory").iterdir())]:
        if each.suffix not in (".md", ".py"):
            inside = each.relative_to(ROOT / "docs").as_posix()
            found.places[f"docs/{inside}"] = inside


def sources() -> Sources:
    """All Markdown of the site."""
    found = Sources()
    for source, path in PAGES.items():
        if (ROOT / source).is_file():
            text = (ROOT / source).read_text(encoding="utf-8")
            found.add(path, source, f"# Licence\n\n```text\n{text}```\n" if source == "LICENSE" else text)
    for page in sorted((ROOT / "docs").glob("*.md")):
        source, text = f"docs/{page.name}", page.read_text(encoding="utf-8")
        if page.stem in SPLIT:
            found.add_split(SPLIT[page.stem], source, text)
        else:
            found.add(page.name, source, text)
    add_made(found)
    for path, text in found.pages.items():  # what is folded away is Markdown too
        found.pages[path] = text.replace("<details><summary>", '<details markdown="1"><summary>')
    found.pages["testing.md"] = found.pages["testing.md"].replace("<!-- counts -->", reference.counts())
    return found


SOURCES = sources()


def on_files(files: Files, config: Any) -> Files:
    """Every page from `SOURCES` in place of the file on disk, and the examples as they are."""
    for path in SOURCES.pages:
        there = files.get_file_from_path(path)
        if there is not None:
            files.remove(there)
        files.append(File.generated(config, path, content=SOURCES.linked(path)))
    for name in SPLIT:
        whole = files.get_file_from_path(f"{name}.md")
        if whole is not None:
            files.remove(whole)
    for path in sorted((ROOT / "build" / "live").glob("*.html")):
        files.append(File.generated(config, f"live/{path.name}", content=path.read_bytes()))
    for each in sorted((ROOT / "examples").iterdir()):
        if each.is_file():
            files.append(File.generated(config, f"examples/{each.name}", content=each.read_bytes()))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Our own way to search from disk, in place of one that is fetched from another host."""
    return output.replace(FETCHED, get_relative_url("site/assets/worker.js", page.url))


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """The same for pages without a source, such as the one for a wrong address, whose links begin at the root."""
    return output.replace(FETCHED, "/site/assets/worker.js")


def on_config(config: Any) -> Any:
    """The way through the site."""
    config["nav"] = navigation()
    return config


def navigation() -> list[Any]:
    """Tabs, and what stands in each."""

    def parts(folder: str) -> list[str]:
        index = f"{folder}/index.md"
        rest = [path for path in SOURCES.pages if path.startswith(f"{folder}/") and path != index]
        return [*([index] if index in SOURCES.pages else []), *rest]

    def there(*paths: str) -> list[str]:
        return [path for path in paths if path in SOURCES.pages]

    return [
        {"Start": there("index.md", "start.md", "tutorial.md", "questions.md", "risks.md", "glossary.md")},
        {
            "How to": [
                *there("choose.md"),
                {TITLES["how-to"]: parts("how-to")},
                {TITLES["plugins"]: parts("plugins")},
                {TITLES["scale"]: parts("scale")},
                *there("audit.md", "logs.md", "training.md", "lab.md", "live.md"),
                {"Notebooks": ["notebooks/which_correction_acts.ipynb", "notebooks/from_a_verl_file.ipynb"]},
            ]
        },
        {
            "Theory": [
                *there("notation.md"),
                {"Corrections": parts("corrections")},
                {"Losses": parts("losses")},
                *there("advantages.md", "laws.md"),
            ]
        },
        {"Frameworks": parts("frameworks")},
        {
            "Reference": [
                {"Public names": parts("reference")},
                {"Commands": [*there("cli.md"), *parts("commands")]},
                *there("metrics.md", "logged-names.md", "records.md", "errors.md"),
            ]
        },
        {"Project": there("testing.md", "contributing.md", "changes.md", "security.md", "conduct.md", "licence.md")},
    ]
