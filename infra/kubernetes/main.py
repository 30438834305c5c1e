"""The file that spark-submit wants; the job itself is `python -m streaming CONFIG`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("streaming", run_name="__main__", alter_sys=True)
