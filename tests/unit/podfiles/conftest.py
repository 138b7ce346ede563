"""The pods' files import one another from their own folder: put it on the path, as each does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "charts" / "horovod" / "files"))
