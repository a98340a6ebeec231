"""Wrong models, plans, libraries, caches and commands, and what must not become of them."""
