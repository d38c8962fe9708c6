import os
import sys
from pathlib import Path

# The toy training (`tests/support`) also runs in processes of its own, which find it by this path. The server
# that they are forked from imports it before it receives the path of this process.
_HERE = str(Path(__file__).parents[2] / "support")
sys.path.insert(0, _HERE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_HERE, os.environ.get("PYTHONPATH")]))
