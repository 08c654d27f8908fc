"""The API verbs on the store: create, get, list, watch, update, patch, scale and delete."""
