"""Everything that a cluster needs before jobs run there: CRDs, RBAC, and the operator's own objects."""
