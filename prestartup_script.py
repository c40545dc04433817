"""ComfyUI runs this before it imports torch."""

import os
import sys

if "--cpu" in sys.argv:  # torch's threads sleep while they wait (docs/performance.md, "On a CPU")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
