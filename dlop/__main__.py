"""Entry point of `python -m dlop`."""

from __future__ import annotations

from dlop.cli.main import exit_with_code

if __name__ == "__main__":
    exit_with_code()
