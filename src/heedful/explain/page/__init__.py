"""An explanation as one HTML document that needs nothing else: no network, no server, no fonts."""

from heedful.explain.page.build import page

__all__ = ["page"]
