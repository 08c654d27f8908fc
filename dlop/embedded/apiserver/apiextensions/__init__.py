"""CustomResourceDefinitions and custom resources: registration, schemas, defaulting, pruning and CEL validation rules."""
