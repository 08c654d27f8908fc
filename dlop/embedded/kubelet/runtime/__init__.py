"""Runtimes that run the processes of pods: in Linux namespaces, or as plain processes where namespaces are not available."""
