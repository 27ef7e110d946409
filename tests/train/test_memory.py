from __future__ import annotations

import platform

from trimtab.train.memory import keep_freed_memory


def test_the_c_library_takes_both_settings_where_it_knows_them():
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
