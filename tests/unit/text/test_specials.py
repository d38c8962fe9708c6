from heedful.text.specials import SPECIALS, Specials


def test_ids_are_fixed_and_first():
    ids = (SPECIALS.pad, SPECIALS.start, SPECIALS.end, SPECIALS.unknown)
    assert ids == (0, 1, 2, 3)
    assert (SPECIALS.classify, SPECIALS.separate, SPECIALS.mask) == (4, 5, 6)
    assert len(SPECIALS) == 7
    assert Specials() == SPECIALS


def test_names_are_in_the_order_of_ids():
    assert SPECIALS.names[SPECIALS.pad] == "<pad>"
    assert SPECIALS.names[SPECIALS.start] == "<s>"
    assert SPECIALS.names[SPECIALS.end] == "</s>"
    assert SPECIALS.names[SPECIALS.unknown] == "<unk>"
    assert SPECIALS.names[SPECIALS.classify] == "<cls>"
    assert SPECIALS.names[SPECIALS.separate] == "<sep>"
    assert SPECIALS.names[SPECIALS.mask] == "<mask>"


def test_only_the_end_token_may_be_generated():
    assert SPECIALS.never_generated == (0, 1, 3, 4, 5, 6)
