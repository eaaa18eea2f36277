"""What every page must be: one file, well-formed, described, escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "br", "img", "hr", "input", "col"}


class Page(HTMLParser):
    """Elements of a page; fails on tags that do not nest."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.source = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.feed(self.source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def check_page(path: Path) -> Page:
    """The page, if it is what it must be."""
    page = Page(path)
    assert len(page.all("table")) == len(page.all("caption")) > 0
    assert all(attributes.get("scope") in ("col", "row") for attributes in page.all("th"))
    pictures = [svg for svg in page.all("svg") if "aria-hidden" not in svg]
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in pictures)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)), "an id occurs twice"
    targets = {reference for name in ("href", "xlink:href") for reference in _inner(page, name)}
    assert targets <= set(ids), f"links to nothing: {targets - set(ids)}"
    assert set(re.findall(r"url\(#([^)]+)\)", page.source)) <= set(ids)
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", re.sub(r'xmlns(:\w+)?="[^"]+"', "", page.source)))
    assert not addresses, f"needs the network: {addresses}"
    assert not page.all("img") and all("src" not in attributes for attributes in page.all("script"))
    assert page.all("html")[0]["lang"] == "en" and "width=device-width" in page.source
    assert not re.search(r"\bnan\b|\bNone\b|<NA>", page.words), "a missing cell is not empty"
    return page


def _inner(page: Page, name: str) -> list[str]:
    return [a[name][1:] for _, a in page.elements if a.get(name, "").startswith("#")]
