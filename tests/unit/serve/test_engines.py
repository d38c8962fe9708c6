"""What engines may use of the machine."""

import os

from heedful.serve.engines import usable_processors


def test_processors_are_those_of_this_process_and_its_container(tmp_path):
    own = len(os.sched_getaffinity(0))
    assert usable_processors(tmp_path) == own
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    for text, expected in (
        ("max 100000", own),
        ("100000 100000", 1),
        ("50000 100000", 1),
        (f"{100_000 * own} 100000", own),
        ("nonsense", own),
    ):
        (tmp_path / "sys/fs/cgroup/cpu.max").write_text(text)
        assert usable_processors(tmp_path) == expected, text
