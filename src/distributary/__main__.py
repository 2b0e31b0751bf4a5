"""`python -m distributary` is the command line."""

from distributary.cli import main

if __name__ == "__main__":
    main()
