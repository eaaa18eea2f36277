"""Pages in a real browser: narrow and wide, light and dark, by keyboard, without network.

Needs `chromium` on the PATH. With CI_BROWSER=1 its absence is a failure; else pages are only parsed.
"""

import json
import os
import re
import shutil
import subprocess
from html import escape, unescape

import pytest

from harness.report.run_page import write_run_report
from harness.report.sweep_page import write_sweep_report
from tests.report.pages import check_page
from tests.report.synthetic import write_failed, write_run

QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=3000",
]

PROBE = """
const luminance = (colour) => {
  const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
  const [r, g, b] = parts.map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)].sort((m, n) => n - m);
  return (x + 0.05) / (y + 0.05);
};
const paper = getComputedStyle(document.body).backgroundColor;
const found = { width: innerWidth, page: document.documentElement.scrollWidth, paper };
found.resources = performance.getEntriesByType("resource").length;
found.contrast = {};
for (const name of ["body", ".subtitle", ".kind", "nav a", "caption span", "thead th", "td", "footer p", ".warning"]) {
  const element = document.querySelector(name);
  if (element) found.contrast[name] = contrast(getComputedStyle(element).color, paper);
}
const pictures = [...document.querySelectorAll("figure svg")];
found.pictures = pictures.length;
found.cut = pictures.filter((picture) => picture.getBoundingClientRect().right > innerWidth + 1).length;
const table = document.querySelector("table.sortable");
const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.classList.contains("number"));
const button = table.tHead.rows[0].cells[at].querySelector("button");
button.focus();
found.focused = document.activeElement === button;
const column = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[at].dataset.sort));
button.click();
found.up = [table.tHead.rows[0].cells[at].getAttribute("aria-sort"), column()];
button.click();
found.down = [table.tHead.rows[0].cells[at].getAttribute("aria-sort"), column()];
parent.document.getElementById("found").textContent = JSON.stringify(found);
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs") / "sweep"
    for number, (precision, group) in enumerate([("int3", 32), ("int4", 32), ("int4", 128)]):
        write_run(folder / f"{number:016x}", precision, group)
    write_failed(folder / "failed", "no memory", "int4", -1)
    return {"run": write_run_report(folder / f"{1:016x}"), "sweep": write_sweep_report([folder], folder)}


def probe(page, profile, width, dark):
    """What a browser says of a page; skips where there is no browser and none is demanded."""
    browser = shutil.which("chromium")
    if browser is None:
        assert os.environ.get("CI_BROWSER") != "1", "CI_BROWSER=1, and no chromium on the PATH: install it"
        pytest.skip("no chromium on the PATH; the page's text was checked without it")
    frame = profile / "frame.html"  # a window is never narrower than 500 pixels, a frame is
    source = escape(page.read_text(encoding="utf-8").replace("</body>", f"<script>{PROBE}</script></body>"))
    inner = f'<iframe srcdoc="{source}" style="width:{width}px;height:900px;border:0"></iframe>'
    frame.write_text(f'<!doctype html><meta charset="utf-8"><pre id="found"></pre>{inner}', encoding="utf-8")
    options = [f"--user-data-dir={profile / 'profile'}", "--window-size=1400,1000", "--dump-dom"]
    options += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command = [browser, *QUIET, *options, frame.as_uri()]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    match = re.search(r'<pre id="found">(.*?)</pre>', said, re.DOTALL)
    assert match, said[-2000:]
    return json.loads(unescape(match[1]))


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["run", "sweep"])
def test_page_in_a_browser(made, tmp_path, name, width, dark):
    check_page(made[name])
    found = probe(made[name], tmp_path, width, dark)
    assert found["width"] == width and found["page"] <= width, "the page is wider than the window"
    assert found["resources"] == 0 and found["pictures"] > 2 and found["cut"] == 0
    assert {name: value for name, value in found["contrast"].items() if value < 4.5} == {}
    light = sum(map(int, re.findall(r"\d+", found["paper"])[:3])) > 3 * 128
    assert light is not dark
    assert found["focused"] and found["up"] == ["ascending", sorted(found["up"][1])]
    assert found["down"] == ["descending", sorted(found["down"][1], reverse=True)]
