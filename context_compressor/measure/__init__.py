"""What memories save and lose, by replaying recorded sessions: for `replay` and the benchmarks."""
