"""What users write: pydantic models of the custom resources, and the CRDs that are made of them."""
