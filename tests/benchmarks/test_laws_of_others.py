"""The page of the laws of others is made of the results that are there, and each can be shown again."""

from benchmarks.laws_of_others import PAGE, RESULTS, page
from context_compressor.laws import Counterexample


def test_the_page_is_what_the_results_say():
    assert PAGE.read_text(encoding="utf-8") == page()


def test_each_counterexample_has_a_picture_and_a_script_under_thirty_lines():
    found = sorted(RESULTS.glob("*/*.json"))
    assert found
    for path in found:
        example = Counterexample.from_json(path.read_text(encoding="utf-8"))
        assert example.law == path.stem
        assert example.picture() == path.with_suffix(".html").read_bytes().decode()
        assert len(path.with_suffix(".py").read_text(encoding="utf-8").splitlines()) < 30
