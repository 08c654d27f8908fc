"""Shared values: what a manifest asks for, the state of a job, and the CRDs generated from the pydantic models of the specs."""
