"""SGLang's server with a key that no list of processes shows: it is the first line of the standard input.

`python -m gyre.backends.engines.keyed_sglang FLAGS`, with the flags of `sglang.launch_server`.
"""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    sys.argv.append(f"--api-key={sys.stdin.readline().strip()}")
    # As `python -m` does it: processes that it spawns import the same main module.
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
