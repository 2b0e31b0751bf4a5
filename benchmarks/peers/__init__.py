"""Other systems beside ours: what runs in their own language or environment."""
