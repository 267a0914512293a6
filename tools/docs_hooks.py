"""Documents of the repository's root as pages of the site: MkDocs calls `on_files`.

Their links lead from the root, those of pages from docs/; what is not on the site is named, not
linked.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md"}
_LINK = re.compile(r"\[([^\]\n]+)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents of the root to the pages."""
    for name, page in PAGES.items():
        text = _LINK.sub(_moved, (ROOT / name).read_text())
        files.append(File.generated(config, page, content=text))
    return files


def _moved(link: re.Match[str]) -> str:
    """Return a link of a document of the root as it leads from docs/."""
    words, path, anchor = link[1], link[2], link[3] or ""
    if path in PAGES:
        return f"[{words}]({PAGES[path]}{anchor})"
    if path.startswith("docs/"):
        return f"[{words}]({path.removeprefix('docs/')}{anchor})"
    return f"`{path}`" if words == path else f"{words} (`{path}`)"
