"""Launcher: a small helper program that starts the processes of pods.

A runtime starts it once. It is single-threaded and uses a few megabytes, so a fork takes a millisecond. It holds the namespaces, is
the parent of every process and reports exits. It exits, and kills everything it started, when the runtime's end of its socket closes.
It uses only the standard library and relative imports, because it runs as a package of its own: `python -I -S -c "..."`.
"""
