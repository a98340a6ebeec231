"""Compiled models: building, saving, loading and running them."""
