"""What numbers alone tell of a request, before anything is searched."""
