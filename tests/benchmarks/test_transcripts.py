"""Damaged transcripts: a slice of what the benchmark reads, one of each sample."""

from tests.benchmarks.programs import Program


def test_half_of_a_damaged_transcript_is_read_and_the_rest_told_or_it_is_refused(program: Program) -> None:
    ran = program("transcripts", "--count", "39", "--seed", "3")
    assert ran.code == 0, ran.out
    assert "39 damaged transcripts, 0 read wrongly" in ran.out
