"""The commands of `dlop`, one module each with `main(arguments) -> int`; `dlop.cli.main` finds them."""
