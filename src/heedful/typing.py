"""Names of types that many modules share."""

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]
"""A JSON object: what files contain and ``--json`` prints."""

JsonMapping = Mapping[str, Any]
"""A JSON object that is only read."""
