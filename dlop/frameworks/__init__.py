"""Built-in frameworks, one package per API group. Each uses the public API of `dlop` and no other framework package."""
