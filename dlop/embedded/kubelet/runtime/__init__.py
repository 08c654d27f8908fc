"""How the processes of a pod are run: in namespaces of their own, or as plain processes where that is not allowed."""
