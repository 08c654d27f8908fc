"""Pure decisions about jobs: what is known goes in, a plan comes out. Nothing here awaits, asks a clock or talks to a server."""
