"""Quality and speed: ratios measured in one run, with the answers checked."""
