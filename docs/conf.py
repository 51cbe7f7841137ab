# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the site: `make docs`. The pages come from docs/ and the sources, by dev/docs-site.py."""

import pathlib
import re

_source = pathlib.Path(__file__).resolve().parent
project = "tenon"
author = "the authors of tenon"
copyright = "the authors of tenon, Apache License 2.0"
release = re.search(r"version: '([\d.]+)'", (_source / "version.txt").read_text(encoding="utf-8"))[1]

extensions = ["myst_parser"]
myst_enable_extensions = ["deflist", "attrs_inline"]
myst_heading_anchors = 3
# A fence names a language that no highlighter knows, or shows part of a program: that is no fault.
suppress_warnings = ["misc.highlighting_failure"]
exclude_patterns = ["requirements.txt", "version.txt"]

html_theme = "furo"
html_title = f"tenon {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False

primary_domain = "c"
highlight_language = "none"
maximum_signature_line_length = 70
toc_object_entries_show_parents = "hide"
add_module_names = False
c_id_attributes = []
