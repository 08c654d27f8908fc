"""Output of jobs: tables and live views on a terminal, plain lines for pipes and files, and JSON."""
