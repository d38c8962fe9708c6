"""The verbs as Python functions: what `heedful` exports, and what the command calls."""
