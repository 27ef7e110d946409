"""What a pickle may be made of, and every way known to us of making it do something."""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import pickletools
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimtab.errors import RecordError
from trimtab.records.dumps import load
from trimtab.records.dumps.pickles import pickle_content, torch_content
from trimtab.records.dumps.pickles.tensors import plain
from trimtab.records.dumps.pickles.unpickler import NotDataError
from trimtab.records.dumps.room import free_room


class Calls:
    """An object whose unpickling calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.made = function, arguments

    def __reduce__(self) -> Any:
        return self.made


class Nested:
    """A call within the arguments of an admitted one."""

    def __reduce__(self) -> Any:
        return OrderedDict, ([(1, Calls(os.system, "touch RAN"))],)


def op(text: str, *more: bytes) -> bytes:
    return text.encode() + b"".join(more)


def put(place: int) -> bytes:
    return b"r" + struct.pack("<I", place)


RUNS = "touch RAN"
HOSTILE: dict[str, bytes] = {
    "os.system": pickle.dumps(Calls(os.system, RUNS)),
    "os.system in protocol 0": pickle.dumps(Calls(os.system, RUNS), 0),
    "eval": pickle.dumps(Calls(eval, "__import__('os').system('touch RAN')")),
    "exec": pickle.dumps(Calls(exec, "open('RAN', 'w')")),
    "open": pickle.dumps(Calls(open, "RAN", "w")),
    "getattr": pickle.dumps(Calls(getattr, "x", "format")),
    "import": pickle.dumps(Calls(__import__, "antigravity")),
    "within an admitted call": pickle.dumps({"samples": [Nested()]}),
    "in a list of samples": pickle.dumps({"samples": [{"tokens": Calls(os.system, RUNS)}]}),
    "by INST": op("(S'touch RAN'\nios\nsystem\n."),
    "by OBJ": op("(cos\nsystem\nS'touch RAN'\no."),
    "by a name that was put away": op("cos\nsystem\n", put(7), b"0j" + struct.pack("<I", 7), b"(S'touch RAN'\ntR."),
    "by STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x09touch RAN\x85R.",
    "by a dotted name": b"\x80\x04\x8c\x0bcollections\x8c\x20OrderedDict.__init__.__globals__\x93.",
    "by a module of an admitted name": b"\x80\x04\x8c\x05torch\x8c\x09os.system\x93\x8c\x09touch RAN\x85R.",
    "by the registry of extensions": b"\x80\x02\x82\xf0S'touch RAN'\n\x85R.",
    "by BUILD of a class's method": op("ccollections\nOrderedDict\n(dS'__setstate__'\ncos\nsystem\nsb."),
    "by BUILD of a stand-in": b"\x80\x02cverl.protocol\nDataProto\nN}U\x04makeU\x01xs\x86b.",
    "by BUILD of a list": b"\x80\x02]N}U\x06appendU\x01xs\x86b.",
    "by calling what is data": b"\x80\x02U\x03abcU\x01x\x85R.",
    "by calling a husk": b"\x80\x02cverl.protocol\nDataProto\n)\x81)R.",
    "by NEWOBJ of a function": b"\x80\x02cos\nsystem\nU\x09touch RAN\x85\x81.",
    "by NEWOBJ_EX": b"\x80\x04\x8c\x02os\x8c\x06system\x93)}\x92.",
    "by a persistent id": b"\x80\x02U\x03keyQ.",
    "by a persistent id as text": b"Pos.system\n.",
    "by an attribute as a key": pickle.dumps({((((1,),),),): 1}),
    "by buffers outside": b"\x80\x05\x97.",
    "by making bytes of a number": b"\x80\x03cbuiltins\nbytes\nJ\xff\xff\xff\x7f\x85R.",
    "by a codec that is code": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
    "by numpy's loader of objects": b"\x80\x02cnumpy\nload\nU\x01x\x85R.",
    "by torch.load": b"\x80\x02ctorch\nload\nU\x01x\x85R.",
    "by _rebuild_from_type_v2 of os.system": b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nNU\x09touch RAN\x85NtR.",
    "by _rebuild_from_type_v2 of data": b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(U\x01xNU\x01y\x85NtR.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused_and_nothing_of_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    copyreg._extension_cache[0xF0] = os.system  # what a process may have put there
    free_room()  # loads what it needs once
    before = set(sys.modules)
    path = tmp_path / "batch.pkl"
    path.write_bytes(HOSTILE[name])
    try:
        with pytest.raises(NotDataError) as refused:
            pickle_content(path)
    finally:
        del copyreg._extension_cache[0xF0]
    assert str(path) in str(refused.value)
    assert not (tmp_path / "RAN").exists()
    assert set(sys.modules) == before


@pytest.mark.parametrize("name", HOSTILE)
def test_inside_a_file_of_torch_it_is_refused_as_well(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "batch.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", HOSTILE[name])
    with pytest.raises(RecordError):
        torch_content(path, path)
    assert not (tmp_path / "RAN").exists()


def test_the_hostile_ones_do_run_where_pickle_itself_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    ran = 0
    for name in ("os.system", "eval", "by INST", "by OBJ", "by STACK_GLOBAL", "by a name that was put away"):
        pickle.loads(HOSTILE[name])
        ran += (tmp_path / "RAN").exists()
        (tmp_path / "RAN").unlink(missing_ok=True)
    assert ran == 6


def test_what_is_refused_is_named(tmp_path: Path):
    path = tmp_path / "batch.pkl"
    path.write_bytes(HOSTILE["os.system"])
    with pytest.raises(NotDataError, match=r"asks for '(posix|os)\.system'.*Nothing of it was run"):
        load([path])


def test_a_place_in_the_memo_costs_nothing_and_a_length_no_file_has_is_no_room(tmp_path: Path):
    path = tmp_path / "batch.pkl"
    path.write_bytes(b"\x80\x02}" + put(0xFFFFFFFF) + b".")  # the machine in C would make room for four billion
    assert pickle_content(path) == {}
    for bomb in (
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40),
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 50),
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40),
        b"\x80\x02\x8b" + struct.pack("<i", 1 << 30),
    ):
        path.write_bytes(bomb + b"abc.")
        with pytest.raises(RecordError, match="damaged or was cut off"):
            pickle_content(path)


def test_a_pickle_cut_anywhere_is_one_sentence(tmp_path: Path):
    whole = pickle.dumps({"samples": [{"tokens": list(range(5)), "reward": 1.0, "text": "a"}]})
    path = tmp_path / "batch.pkl"
    for end in range(1, len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(RecordError):
            pickle_content(path)
    path.write_bytes(whole)
    assert pickle_content(path)["samples"][0]["reward"] == 1.0


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_comes_back_as_it_was(protocol: int, tmp_path: Path):
    data = {
        "numbers": [1, -1, 2**70, 1.5, float("inf"), True, None],
        "text": "ü\n",
        "bytes": b"\x00\xff",
        "tuple": (1, (2, 3)),
        "ordered": OrderedDict(a=1),
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "objects": np.array(["a", "bc"], dtype=object),
        "scalar": np.float64(2.5),
        "big": np.arange(3, dtype=">i4"),
    }
    path = tmp_path / "batch.pkl"
    path.write_bytes(pickle.dumps(data, protocol))
    found = pickle_content(path)
    assert {name: found[name] for name in ("numbers", "text", "bytes", "tuple", "scalar")} == {
        name: data[name] for name in ("numbers", "text", "bytes", "tuple", "scalar")
    }
    assert found["ordered"] == {"a": 1}
    for name in ("array", "fortran", "big"):
        assert np.array_equal(plain(found[name]), data[name])
    assert plain(found["objects"]) == ["a", "bc"]


def test_tensors_of_every_type_and_layout_come_back_as_arrays(tmp_path: Path):
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    kinds = (
        *(
            torch.float64,
            torch.float32,
            torch.float16,
            torch.bfloat16,
            torch.int64,
            torch.int32,
            torch.int16,
            torch.int8,
        ),
        *(torch.uint8, torch.bool, torch.uint16),
    )
    data: dict[str, Any] = {str(kind): base.to(kind) for kind in kinds}
    data |= {
        "view": base[1:3, ::2],
        "transposed": base.t(),
        "expanded": torch.ones(1).expand(5),
        "parameter": torch.nn.Parameter(base),
        "empty": torch.empty(0, 3),
        "number": torch.tensor(3.5),
        "shared": base,
    }
    path = tmp_path / "batch.pt"
    torch.save(data, path)
    found = torch_content(path, path)
    for name, tensor in data.items():
        wanted = tensor.detach().float() if tensor.dtype is torch.bfloat16 else tensor.detach()
        assert np.array_equal(found[name], wanted.numpy()), name
    assert torch_content(path.read_bytes(), path)["view"].tolist() == base[1:3, ::2].tolist()


def test_jagged_tensors_are_lists_of_rows(tmp_path: Path):
    rows = [torch.arange(3), torch.arange(5), torch.arange(0)]
    path = tmp_path / "batch.pt"
    torch.save(torch.nested.as_nested_tensor(rows, layout=torch.jagged), path)
    assert [row.tolist() for row in torch_content(path, path)] == [row.tolist() for row in rows]


def archive(path: Path, content: bytes, storages: dict[str, bytes], **options: Any) -> None:
    with zipfile.ZipFile(path, "w", **options) as made:
        made.writestr("archive/data.pkl", content)
        for key, data in storages.items():
            made.writestr(f"archive/data/{key}", data)


def rebuilt(key: str, count: int, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """The pickle of one tensor of float32, as torch writes it."""
    stream = io.BytesIO()

    class Storage:
        pass

    class Pickler(pickle._Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return ("storage", torch.FloatStorage, key, "cpu", count) if isinstance(obj, Storage) else None

    class Tensor:
        def __reduce__(self) -> Any:
            return torch._utils._rebuild_tensor_v2, (Storage(), offset, size, stride, False, OrderedDict())

    Pickler(stream, 2).dump(Tensor())
    return stream.getvalue()


@pytest.mark.parametrize(
    ("count", "offset", "size", "stride"),
    [
        (4, 0, (5,), (1,)),  # one beyond
        (4, 1, (4,), (1,)),
        (4, 0, (2,), (4,)),
        (4, -1, (2,), (1,)),
        (4, 3, (2,), (-1,)),
        (4, 0, (-1,), (1,)),
        (4, 0, (1 << 40,), (0,)),  # a bomb of zeros
        (4, 0, (2, 2), (1,)),
        (8, 0, (8,), (1,)),  # the storage says more than it has
        (1 << 40, 0, (4,), (1,)),
    ],
)
def test_a_tensor_beyond_its_storage_is_refused(
    count: int, offset: int, size: tuple[int, ...], stride: tuple[int, ...], tmp_path: Path
):
    path = tmp_path / "batch.pt"
    archive(path, rebuilt("0", count, offset, size, stride), {"0": np.arange(4, dtype=np.float32).tobytes()})
    with pytest.raises(RecordError, match=str(path)):
        torch_content(path, path)


def test_the_same_archive_with_a_tensor_that_fits_is_read(tmp_path: Path):
    path = tmp_path / "batch.pt"
    archive(path, rebuilt("0", 4, 1, (3,), (1,)), {"0": np.arange(4, dtype=np.float32).tobytes()})
    assert torch_content(path, path).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("key", ["../0", "/etc/passwd", "..", "", "0/../1", "absent"])
def test_a_storage_elsewhere_is_refused(key: str, tmp_path: Path):
    path = tmp_path / "batch.pt"
    archive(path, rebuilt(key, 4, 0, (4,), (1,)), {"0": bytes(16), "../0": bytes(16)})
    with pytest.raises(RecordError, match="storage that the file does not have"):
        torch_content(path, path)


def test_compressed_members_are_refused_as_they_may_be_of_any_size(tmp_path: Path):
    path = tmp_path / "batch.pt"
    content = rebuilt("0", 25_000_000, 0, (4,), (1,))
    archive(path, content, {"0": bytes(100_000_000)}, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 200_000
    with pytest.raises(RecordError, match="neither compressed nor encrypted"):
        torch_content(path, path)


def test_two_pickles_no_pickle_and_half_a_file_are_one_sentence(tmp_path: Path):
    path = tmp_path / "batch.pt"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("a/data.pkl", pickle.dumps({}))
        made.writestr("b/data.pkl", pickle.dumps({}))
    with pytest.raises(RecordError, match=r"needs one data\.pkl"):
        torch_content(path, path)
    torch.save({"a": torch.arange(1000)}, path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(RecordError):
        load([path])


def test_the_older_form_of_torch_save_is_told_by_name(tmp_path: Path):
    path = tmp_path / "batch.pt"
    torch.save({"a": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(RecordError, match="older form of torch"):
        load([path])


OPERATIONS = [opcode.code.encode("latin1") for opcode in pickletools.opcodes]
PIECES = [
    *(b"cos\nsystem\n", b"ccollections\nOrderedDict\n", b"cverl.protocol\nDataProto\n", b"cnumpy\ndtype\n"),
    *(b"ctorch._utils\n_rebuild_tensor_v2\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"ctorch\nFloatStorage\n"),
    *(b"X\x03\x00\x00\x00abc", b"K\x05", b"U\x02xy", b"C\x04\x00\x00\x80?", b"q\x01", b"h\x01", b"J\xff\xff\xff\x7f"),
]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=st.lists(st.sampled_from(OPERATIONS + PIECES) | st.binary(max_size=3), max_size=40))
def test_any_program_ends_in_data_or_one_sentence(program: list[bytes], tmp_path: Path):
    path = tmp_path / "batch.pkl"
    path.write_bytes(b"\x80\x04" + b"".join(program) + b".")
    with suppress(RecordError):  # whatever else is raised fails the test
        plain(pickle_content(path))


def test_reading_a_file_of_torch_imports_no_torch(tmp_path: Path):
    torch.save({"rollout_id": 1, "samples": []}, tmp_path / "1.pt")
    code = (
        "import sys; from pathlib import Path; from trimtab.records.dumps.pickles import torch_content;"
        "path = Path(sys.argv[1]); print(torch_content(path, path), 'torch' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "1.pt")], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "{'rollout_id': 1, 'samples': []} False"


def test_every_operation_of_every_protocol_is_either_ours_or_refused():
    from trimtab.records.dumps.pickles.unpickler import PlainUnpickler

    known = {opcode.code.encode("latin1")[0] for opcode in pickletools.opcodes}
    assert known <= PlainUnpickler.dispatch.keys()
    refused = {
        pickletools.code2op[chr(code)].name for code in known if PlainUnpickler.dispatch[code].__name__ == "refuse"
    }
    assert refused == {
        *("INST", "OBJ", "EXT1", "EXT2", "EXT4", "PERSID", "NEXT_BUFFER", "READONLY_BUFFER", "DUP"),
    }
