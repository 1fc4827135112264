"""A hook of mkdocs: links of pages to files outside ``docs/`` become their names, for the site has no such files.

On a code host the links work as they are. One to a file that is not there ends the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, /, *, page: Any, config: Any, files: Any) -> str:
    """The page's text without such links.

    Raises:
        FileNotFoundError: a link to a file that the repository does not have.
    """
    docs = Path(config["docs_dir"]).resolve()
    folder = Path(page.file.abs_src_path).resolve().parent

    def replace(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(docs):
            return link[0]
        if not target.exists():
            raise FileNotFoundError(f"{page.file.src_path}: a link must name a file of the repository, got {link[2]}")
        return f"{link[1]} (`{target.relative_to(ROOT)}`)"

    return _LINK.sub(replace, markdown)
