"""Questions and prose that travel with the harness, and the script that builds them (README.md beside)."""
