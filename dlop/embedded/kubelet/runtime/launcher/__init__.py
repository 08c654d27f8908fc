"""The program that starts the processes of pods: a small one beside the big one.

A runtime starts it once. It has one thread and a few megabytes, so that it forks in a millisecond, which a big program with an
event loop cannot. It uses nothing but the standard library, and its modules import each other relatively, for it is run as a
package of its own: `python -I -S -c "..."`. It holds the namespaces, is the parent of everything that runs, and tells how it
ended. When it dies, all of that dies, and it dies when the runtime's end of its socket is closed, however that happens.
"""
