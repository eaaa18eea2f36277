"""Models: fetching, loading, and the sites they are made of."""
