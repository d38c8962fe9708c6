"""Render an explanation as one self-contained HTML document: no network, no server, no web fonts."""
