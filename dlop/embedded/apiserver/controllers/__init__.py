"""What the server does by itself, as the controller manager does for a real one."""
