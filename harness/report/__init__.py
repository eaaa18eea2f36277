"""Results as tables, pictures and pages. `tables` and `cells` write a run's files; all else reads them and no model."""
