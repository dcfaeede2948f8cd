"""Every automatic choice: defaults, recipes, the plan of a run, its tuning, remembered settings."""
