"""``python -m nearfar``: the same as the ``nearfar`` command."""

from nearfar.cli import main

if __name__ == "__main__":
    main()
