"""Render an explanation as one self-contained HTML document: no network, no server, no web fonts."""

from heedful.explain.page.build import page

__all__ = ["page"]
