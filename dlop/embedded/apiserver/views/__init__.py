"""Representations other than plain objects: tables, discovery and OpenAPI documents."""
