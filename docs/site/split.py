"""Long pages as one page per section, and every link to them set right.

docs/corrections.md ──► corrections/index.md (what stands before the first section, and a list of the sections)
                        corrections/token-tis.md, corrections/icepop.md, … (each section with its headings raised)
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field

from markdown.extensions.toc import slugify

SECTION = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
HEADING = re.compile(r"^(?P<marks>#{1,6}) (?P<title>.+)$", re.MULTILINE)
LINK = re.compile(r"(?P<before>!?\[[^\]]*\]\()(?P<target>[^)\s]+)(?P<after>\))")
FENCE = re.compile(r"^(?P<fence>```|~~~).*?^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass
class Sources:
    """Markdown by the path it has in the site, and where each path and anchor of the repository stands there."""

    pages: dict[str, str] = field(default_factory=dict)
    came_from: dict[str, str] = field(default_factory=dict)
    """The repository's path of each page."""
    places: dict[str, str] = field(default_factory=dict)
    """`docs/corrections.md#token-tis` → `corrections/token-tis.md`."""

    def add(self, path: str, source: str, text: str) -> None:
        """A page as it is."""
        self.pages[path], self.came_from[path] = text, source
        self.places[source] = path

    def add_split(self, folder: str, source: str, text: str) -> None:
        """A page in sections."""
        sections = list(SECTION.finditer(_without_code(text)))
        ends = [each.start() for each in sections[1:]] + [len(text)]
        names = {each["title"]: f"{folder}/{file_name(each['title'])}.md" for each in sections}
        intro = text[: sections[0].start()].rstrip()
        listed = "\n".join(f"- [{title}]({posixpath.basename(path)})" for title, path in names.items())
        self.add(f"{folder}/index.md", source, f"{intro}\n\n## Pages\n\n{listed}\n")
        for each, end in zip(sections, ends, strict=True):
            path, part = names[each["title"]], text[each.start() : end]
            self.pages[path], self.came_from[path] = _raised(part), source
            for title in (found["title"] for found in HEADING.finditer(_without_code(part))):
                is_top = title == each["title"]
                self.places[f"{source}#{anchor(title)}"] = path if is_top else f"{path}#{anchor(title)}"

    def linked(self, path: str) -> str:
        """A page with its links as they are in the site."""
        text, source = self.pages[path], self.came_from[path]
        kept = [each.span() for each in FENCE.finditer(text)]

        def renewed(found: re.Match[str]) -> str:
            if any(start <= found.start() < end for start, end in kept):
                return found[0]
            return found["before"] + self._target(found["target"], path, source) + found["after"]

        return LINK.sub(renewed, text)

    def _target(self, target: str, path: str, source: str) -> str:
        if re.match(r"[a-z]+:", target):
            return target
        file, _, anchor_ = target.partition("#")
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(source), file)) if file else source
        whole = f"{meant}#{anchor_}" if anchor_ else meant
        if whole in self.places:
            place = self.places[whole]
        elif meant in self.places and (file or source != meant):
            place = self.places[meant] + (f"#{anchor_}" if anchor_ else "")
        else:
            return target
        inside, _, anchor_ = place.partition("#")
        if inside == path:
            return f"#{anchor_}" if anchor_ else posixpath.basename(path)
        near = posixpath.relpath(inside, posixpath.dirname(path) or ".")
        return f"{near}#{anchor_}" if anchor_ else near


def anchor(title: str) -> str:
    """The anchor that both GitHub and the site give a heading."""
    return slugify(re.sub(r"[`*]", "", title), "-")


def file_name(title: str) -> str:
    """A file for a section."""
    return anchor(title.replace("+", "-"))


def _without_code(text: str) -> str:
    """The same length with code blanked, so that a comment in it is no heading."""
    return FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def _raised(part: str) -> str:
    """A section as a page: each heading one level up."""
    plain, out, at = _without_code(part), [], 0
    for each in HEADING.finditer(plain):
        out += [part[at : each.start()], part[each.start() + 1 : each.end()]]
        at = each.end()
    return "".join([*out, part[at:]])
