"""Custom resources: what a CRD may say, and what its objects have to be like."""
