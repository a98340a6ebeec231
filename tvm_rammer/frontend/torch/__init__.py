"""Programs of PyTorch: ``import_torch`` reads and imports them."""
