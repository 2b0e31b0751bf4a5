"""Quality and speed, measured: ratios from one run, with the answers checked."""
