"""The documentation site is built without a warning, works offline, has no dead link; what it shows runs."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from launch_job import Job, environment, run

ROOT = Path(__file__).parents[2]
PYTHON = re.compile(r"```python\n# train\.py\n(.*?)```", re.S)


class Links(HTMLParser):
    """What a page loads, what it leads to, and the places in it that others can lead to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.places |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.leads.append(found["href"])
        elif tag in ("script", "img", "iframe") and "src" in found:
            self.loads.append(found["src"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon") and "href" in found:
            self.loads.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="requirements/docs.txt has it")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, ROOT / "docs" / "site.py", folder]
    done = subprocess.run(words, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_no_link_is_dead_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 30
    dead = []
    for page, found in pages.items():
        assert not [link for link in found.loads if "//" in link], page
        for link in (*found.loads, *found.leads):
            path, _, place = unquote(link).partition("#")
            if "//" in path or path.startswith(("mailto:", "data:")):
                continue
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (place and target in pages and place not in pages[target].places):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert dead == []


def test_the_reference_has_every_public_name(site: Path) -> None:
    import byteps

    places = Links(site / "reference" / "byteps.html").places
    missing = {name for name in byteps.__all__ if not name.startswith("_") and f"byteps.{name}" not in places}
    assert missing == set()


def test_the_tutorial_runs_and_goes_on_where_it_was(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text()
    (tmp_path / "train.py").write_text("".join(PYTHON.findall(text)))
    (commands,) = re.findall(r"```sh\n(python train\.py.*?)```", text, re.S)
    begun, ranks = 0, (1, 2, 4)
    for command, size in zip(commands.splitlines(), ranks, strict=True):
        shell = f"cd {tmp_path} && exec {command}"
        job = run(
            Job(["/bin/sh", "-c", shell], PATH=f"{Path(sys.executable).parent}:{environment()['PATH']}")
        )
        assert job.process.returncode == 0, job.said
        epochs = re.findall(rf"epoch (\d+): loss [0-9.]+ on {size} ranks", job.out.decode())
        assert [int(epoch) for epoch in epochs] == list(range(begun, begun + 4)), job.out
        begun += 4


def test_what_the_page_of_notebooks_shows(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "notebooks.md").read_text()
    cell, script = re.findall(r"```python\n(.*?)```", text, re.S)
    (command,) = re.findall(r"```sh\n(.*?)\n```", text)
    both = f"{cell}\nbps.init()\nbps.shutdown()\n{cell}"  # cells can be run again
    done = subprocess.run(
        [sys.executable, "-c", both],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environment(),
    )
    assert done.stdout == 2 * "[1. 1. 1.] of 1\n"
    (tmp_path / "first.py").write_text(script)
    path = f"{Path(sys.executable).parent}:{environment()['PATH']}"
    job = run(Job(["/bin/sh", "-c", f"cd {tmp_path} && exec {command}"], PATH=path))
    assert job.lines("worker 1") == ["rank 1 [0.5 0.5]"], job.said
