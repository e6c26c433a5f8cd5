# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx, which reads README.md and docs as they are, from the root of the tree (jobs/docs)."""

import re

project = html_title = "Tessera"
author = "Tessera contributors"
extensions = ["myst_parser"]
myst_heading_anchors = 4  # links to headings, as the repository's pages have them
suppress_warnings = ["misc.highlighting_failure"]  # code with parts left out (…)
root_doc = "docs/README"
include_patterns = ["README.md", "docs/**"]
exclude_patterns = ["build", "out"]
html_theme = "furo"
html_copy_source = False
html_show_copyright = False


def tree(pages, option=":glob:"):
    return f"\n\n```{{toctree}}\n:hidden:\n{option}\n" + "\n".join(pages) + "\n```\n"


def navigation(index):
    """The pages that each section of docs/README.md lists, in its order."""
    text, seen = '\n\n<a href="../api/index.html">C++ interface</a>: the reference of the public headers.\n', set()
    for section in index.split("\n## ")[1:]:
        pages = [page for page in re.findall(r"^\| \[[^]]*\]\(([^)]+)\.md\)", section, re.M) if page not in seen]
        seen.update(pages)
        text += tree(pages, ":caption: " + section.split("\n")[0])
    return text


def add_navigation(_, page, source):
    if page == root_doc:
        source[0] += navigation(source[0])
    elif page == "docs/decisions/README":
        source[0] += tree(["0*"])
    elif page == "docs/measurements/README":
        source[0] += tree(re.findall(r"^\| \[[^]]*\]\(([^)/]+)\.md\)", source[0], re.M))


def setup(app):
    app.connect("source-read", add_navigation)
