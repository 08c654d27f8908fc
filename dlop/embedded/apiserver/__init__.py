"""An API server that behaves as the real one does where controllers and `kubectl` look."""
