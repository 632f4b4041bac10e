"""What the wrapper knows of the history without holding it."""

from __future__ import annotations

from context_compressor.memory.table import MessageTable


class Counting(dict[str, int]):
    """Counts how often it is asked whether it holds a key."""

    asked = 0

    def __contains__(self, key: object) -> bool:
        self.asked += 1
        return super().__contains__(key)


def test_a_further_message_under_an_id_takes_no_look_at_those_before() -> None:
    known = MessageTable()
    known.tokens = counting = Counting()
    for _ in range(100):
        known.append("a", 1)
    assert len(known) == known.total_tokens == 100
    assert counting.asked < 500


def test_keys_are_the_same_in_every_memory_and_meet_no_id() -> None:
    ids = ["a", "a\0002", "a", "b", "a"]
    first, again = MessageTable(), MessageTable()
    keys = [first.append(id, 1) for id in ids]
    assert keys == [again.append(id, 1) for id in ids]
    assert len(set(keys)) == len(first) == 5


def test_once_all_under_an_id_are_gone_its_keys_begin_anew() -> None:
    known = MessageTable()
    keys = [known.append("a", 1) for _ in range(3)]
    assert known.keys_of(["a"]) == keys
    known.remove(keys)
    assert [known.append("a", 1) for _ in range(3)] == keys
