"""What keeps the benchmarks themselves right."""
