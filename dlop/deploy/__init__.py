"""Everything that has to be in a cluster before the operator can run there: definitions, rights, the operator itself."""
