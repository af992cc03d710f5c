"""Lets test files share their helpers, from whatever folder they run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
