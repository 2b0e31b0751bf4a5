"""The command line as a file, which is what `spark-submit` takes.

Its path is printed by `python -m distributary.submit --path`.
"""

import sys

from distributary.cli import main

if __name__ == "__main__":
    if sys.argv[1:] == ["--path"]:
        print(__file__)
    else:
        main()
