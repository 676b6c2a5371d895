"""Builds the documentation site: ``python docs/site.py build/site``. It works offline, from a folder.

Where a browser allows no workers from files, the search needs ``python -m http.server -d build/site``.

Pages keep the places that they have in the repository, so that the same links work in both. Files that a page
links to come along; of a folder that is linked to, a page with its files is made. The reference is made of
docstrings.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")
ELSEWHERE = re.compile(r'<script src="?https://unpkg\.com/[^>]*></script>')
FRAMEWORKS = ("torch", "tensorflow", "keras", "mxnet", "jax", "ray")
MODULES = ("byteps", *(f"byteps.{name}" for name in FRAMEWORKS))
NAVIGATION = {
    "Begin": ["docs/index", "docs/tutorial", "docs/faq", "docs/notebooks"],
    "Frameworks": ["docs/pytorch", "docs/pytorch-backend", "docs/frameworks", "docs/horovod"],
    "Run": ["docs/launching", "docs/one-machine", "docs/kubernetes", "docs/gpu", "docs/compression"],
    "Observe": [
        "docs/troubleshooting",
        "docs/observing",
        "docs/performance",
        "docs/results",
        "benchmarks/PERFORMANCE",
    ],
    "Reference": ["docs/configuration", "docs/compression-format", "protocol/PROTOCOL"],
    "Project": ["ARCHITECTURE", "CONTRIBUTING", "SECURITY", "CHANGELOG", "release/CHECKLIST"],
}


def pages() -> list[Path]:
    """Every page of the repository that belongs to the site."""
    named = [ROOT / f"{name}.md" for names in NAVIGATION.values() for name in names]
    return named + sorted((ROOT / "docs" / "adr").glob("*.md"))


def bring(page: Path, to: Path) -> None:
    """A page, and what it links to."""
    target = to / page.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = page.read_text()
    for link, _ in LINK.findall(text):
        found = (page.parent / link).resolve()
        place = to / found.relative_to(ROOT)
        if found == ROOT / "README.md":  # its place on a site is that of the first page
            text = text.replace(f"]({link}", f"]({link.removesuffix('README.md')}docs/index.md")
        elif found.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            (place / "index.md").write_text(listing(found, place))
            text = text.replace(f"]({link})", f"]({link.rstrip('/')}/index.md)")
        elif not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, place)
            if found.suffix == ".md" and found not in pages():
                bring(found, to)
    target.write_text(text)


def listing(folder: Path, place: Path) -> str:
    """The files of a folder, with what each says of itself."""
    rows = [f"# {folder.relative_to(ROOT)}", ""]
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in (".py", ".sh", ".md"):
            shutil.copy(path, place)
            doc = ast.get_docstring(ast.parse(path.read_text())) if path.suffix == ".py" else None
            rows.append(f"- [{path.name}]({path.name}): {(doc or '').partition(chr(10))[0]}")
    return "\n".join(rows) + "\n"


def settings(pages_folder: Path, site: Path) -> dict[str, object]:
    """What mkdocs is told; JSON is YAML, too."""
    reference = [{name: f"reference/{name}.md"} for name in MODULES]
    navigation = [{title: [f"{name}.md" for name in names]} for title, names in NAVIGATION.items()]
    decisions = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "adr").glob("*.md"))
    handler = {"paths": [str(ROOT / "src")], "options": {"show_source": False, "heading_level": 2}}
    return {
        "site_name": "byteps",
        "docs_dir": str(pages_folder),
        "site_dir": str(site),
        "use_directory_urls": False,
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.sections", "content.code.copy"],
        },
        "plugins": ["search", "offline", {"mkdocstrings": {"handlers": {"python": handler}}}],
        "markdown_extensions": ["tables", "admonition", "pymdownx.superfences", "pymdownx.highlight"],
        "validation": {"links": {"anchors": "warn", "unrecognized_links": "warn"}, "omitted_files": "ignore"},
        "nav": [*navigation, {"API": reference}, {"Decisions": decisions}],
        "extra": {"generator": False},
    }


def build(site: Path) -> int:
    """Build it, and return the exit code of mkdocs: a warning is an error."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "pages"
        for page in pages():
            bring(page, made)
        (made / "index.md").write_text('<meta http-equiv="refresh" content="0; url=docs/index.html">\n')
        (made / "reference").mkdir()
        for name in MODULES:
            (made / "reference" / f"{name}.md").write_text(f"# {name}\n\n::: {name}\n")
        config = Path(folder) / "mkdocs.yml"
        config.write_text(json.dumps(settings(made, site.resolve())))
        words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(config)]
        code = subprocess.run(words, check=False).returncode
    for page in site.rglob("*.html"):  # the theme's one script from elsewhere
        page.write_text(ELSEWHERE.sub("", page.read_text()))
    return code


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else "build/site")))
