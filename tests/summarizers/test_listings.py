"""What lists is told by its items."""

import json

import pytest

from context_compressor.summarizers.extracts.outcomes import read_outcome

STATUS = """On branch main
Your branch is up to date with 'origin/main'.

Changes not staged for commit:
  (use "git add <file>..." to update what will be committed)
\tmodified:   b.txt
\tboth modified:   c.txt

Untracked files:
\tnew.txt

no changes added to commit (use "git add" and/or "git commit -a")"""
LOG = """commit 1a2b3c4d5e6f7a8b9c0d1a2b3c4d5e6f7a8b9c0d (HEAD -> main)
Author: Ada <a@b.c>
Date:   Mon Jan 1 10:00:00 2024 +0000

    Add tax to the cart

commit 2b3c4d5e6f7a8b9c0d1a2b3c4d5e6f7a8b9c0d1a
Author: Ada <a@b.c>
Date:   Sun Dec 31 10:00:00 2023 +0000

    First words
"""


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (STATUS, "On branch main: modified b.txt, both modified c.txt, new.txt (12 lines)"),
        ("On branch main\nnothing to commit", "On branch main | nothing to commit"),
        (LOG, "1a2b3c4 Add tax to the cart; 2b3c4d5 First words"),
        (
            "A Google search for 'x' found 2 results:\n\n## Web Results\n1. [Peak - Wikipedia](https://a.example)\n\n"
            "4,884 m\n\n2. [Summits](https://b.example)\n\nA list.",
            "2 found: Peak - Wikipedia; Summits",
        ),
        (
            "Title: Guide\nURL: https://a.example\n\nTitle: Docs\nURL: https://b.example",
            "2 found: Guide; Docs",
        ),
        ("This is found below, it says:\nSummary:\nIt is 4,884 m.\nNo more.", "It is 4,884 m. | No more."),
    ],
)
def test_a_list_is_told_by_its_items(text: str, outcome: str):
    assert read_outcome(text) == (outcome, False)


def test_a_directory_that_was_shown_is_told_by_what_is_in_it():
    listed = "Here are files and directories in /w, as asked:\n/w/\n/w/a.py\n/w/tests/\n/w/tests/test_a.py"
    assert read_outcome(listed, is_read=True)[0] == "a.py, tests/, tests/test_a.py (5 lines)"


def test_of_a_list_of_objects_is_told_how_many_they_are_and_what_became_of_each():
    bills = [{"bill_id": f"B{n}", "customer_id": "C1", "of": "x" * 60, "status": "Paid"} for n in range(3)]
    assert read_outcome(json.dumps(bills))[0].startswith("3 items: B0; B1; B2 | bill_id: B0, ")
    bills[1]["status"] = "Overdue"
    assert read_outcome(json.dumps(bills))[0].startswith("3 items: B0 Paid; B1 Overdue; B2 Paid | ")
    assert read_outcome(json.dumps([{"of": "x" * 90}] * 2))[0].startswith("of: xxx")


def test_what_holds_nothing_is_told_as_such():
    assert read_outcome('{"items": [], "more": {}, "total": 0}')[0] == "items: none, more: none, total: 0"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (
            "npm warn old\n\nadded 3 packages in 8s\n\n45 packages are looking for funding",
            "added 3 packages in 8s",
        ),
        ("x: Refreshing state...\n\nNo changes. It matches.\n\nNo more.", "No changes. It matches."),
        ("PHPUnit 10\n\n....\n\nOK (4 tests, 9 assertions)", "OK (4 tests, 9 assertions)"),
        ("A -> A.dll\n\nBuild succeeded.\n    0 Error(s)", "Build succeeded."),
    ],
)
def test_what_decides_is_told_and_not_what_stands_around_it(text: str, outcome: str):
    assert read_outcome(text) == (outcome, False)
