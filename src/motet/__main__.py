"""The entry point of `python -m motet`: the command line."""

from motet.tools.main import main

if __name__ == "__main__":
    main()
