"""What `kubectl` asks for beside the objects: tables, discovery and OpenAPI."""
