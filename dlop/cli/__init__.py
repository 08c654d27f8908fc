"""The `dlop` command line: one module per command, dispatched by `dlop.cli.main`."""
