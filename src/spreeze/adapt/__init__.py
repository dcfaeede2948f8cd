"""Fitting a run to the machine: `hardware` says what is here and how busy it is, `tune` what to choose and why."""
