"""``foxhunt tune`` as a script, for ``ray job submit``: it runs from an upload that is not installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from foxhunt_ray.cli import main

if __name__ == "__main__":
    sys.exit(main(["tune", *sys.argv[1:]]))
