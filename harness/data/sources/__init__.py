"""What each source package gives, one module a source; build.py puts them together."""
