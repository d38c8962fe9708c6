import sys
from pathlib import Path

# The toy training is also run in processes of its own, which find it by this path.
sys.path.insert(0, str(Path(__file__).parent))
