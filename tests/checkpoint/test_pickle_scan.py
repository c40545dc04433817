"""What a pickle would build is known before it is built."""

import collections
import io
import pickle
import random
import struct
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from animegamer_core.checkpoint.pickle_scan import DamagedPickle, RefusedPickle, scan_pickle
from animegamer_core.checkpoint.storage import CheckpointError
from animegamer_core.checkpoint.weight_files import PickleSource, _index_of, read_state

GOOD = {
    "module": collections.OrderedDict(a=torch.randn(4, 5).half(), view=torch.randn(6, 5)[1:4].t(), none=torch.empty(0)),
    "parameter": torch.nn.Parameter(torch.ones(3)),
    "numpy": np.random.RandomState(1).get_state(),
    "python": random.Random(1).getstate(),
    "config": {"x": [1, 2.5, None, True, (1, (2, 3))], "names": {"a", "b"}, "big": 10**30, "bytes": b"abc"},
    "types": (torch.bfloat16, torch.Size([3, 4]), torch.device("cpu")),
    "state": torch.nn.Linear(3, 4).state_dict(),
}


@pytest.mark.parametrize("zipped", [True, False])
def test_what_torch_saves_passes(zipped):
    file = io.BytesIO()
    torch.save(GOOD, file, _use_new_zipfile_serialization=zipped)
    size = file.tell()
    if zipped:
        with zipfile.ZipFile(file) as archive:
            file = io.BytesIO(archive.read("archive/data.pkl"))
    file.seek(0)
    for _ in range(1 if zipped else 5):
        scan_pickle(file, size)


def called(name: bytes, *arguments: bytes) -> bytes:
    """A pickle that calls a global."""
    return b"\x80\x02c" + name + b"\n(" + b"".join(arguments) + b"tR."


def number(value: int) -> bytes:
    digits = value.to_bytes(8, "little")
    return b"\x8a\x08" + digits


def storage(kind: bytes, count: int) -> bytes:
    """The instructions of a tensor's storage."""
    return (
        b"(X\x07\x00\x00\x00storagectorch\n"
        + kind
        + b"\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
        + number(count)
        + b"tQ"
    )


HOOKS = b"ccollections\nOrderedDict\n)R"


def tensor(count: int, offset: int, size: int, stride: int, kind: bytes = b"FloatStorage") -> bytes:
    values = [storage(kind, count), number(offset), number(size) + b"\x85", number(stride) + b"\x85", b"\x89", HOOKS]
    return called(b"torch._utils\n_rebuild_tensor_v2", *values)


def doubled(times: int) -> bytes:
    """A dict whose key is a tuple of twice a tuple of twice a tuple ...: its hash takes 2 ** times steps."""
    pair = b"q\x00h\x00\x86"
    return b"\x80\x02}K\x01" + pair * times + b"Ns."


DTYPE = b"cnumpy\ndtype\n(X\x02\x00\x00\x00%bK\x00K\x01tR"
ENCODED = b"c_codecs\nencode\n(h\x00X\x06\x00\x00\x00latin1tR"
HOSTILE = {
    "runs a command": (called(b"os\nsystem", b"X\x02\x00\x00\x00ls"), "holds the object 'posix.system'|'os.system'"),
    "5 GB of zeros": (called(b"__builtin__\nbytearray", number(5 * 10**9)), "builtins.bytearray"),
    "an array of 4 TB": (
        called(b"numpy.core.multiarray\n_reconstruct", b"cnumpy\nndarray\n", number(4 << 40) + b"\x85", b"U\x01b"),
        "calls numpy.core.multiarray._reconstruct",
    ),
    "an array made directly": (called(b"numpy\nndarray", number(4 << 40)), "calls numpy.ndarray"),
    "an array of objects": (b"\x80\x02" + DTYPE % b"O8" + b".", "calls numpy.dtype"),
    "a storage of 4 TB": (tensor(1 << 40, 0, 1, 1), "claim more bytes than the 10000"),
    "a view behind its storage": (tensor(8, 0, 1 << 40, 1), "_rebuild_tensor_v2"),
    "a view of large strides": (tensor(8, 0, 2, 1 << 40), "_rebuild_tensor_v2"),
    "a key that unfolds": (doubled(15), "neither a string nor a small number"),
    "keys of one hash": (b"\x80\x02}" + number(3 * (2**61 - 1)) + b"Ns.", "neither a string nor a small number"),
    "a dtype that holds itself": (
        b"\x80\x02" + DTYPE % b"u1" + b"q\x00(K\x03X\x01\x00\x00\x00|h\x00NNK\x01K\x01K\x00tb.",
        "changes an object",
    ),
    "a set of a tensor": (called(b"__builtin__\nset", tensor(8, 0, 8, 0)[2:-1]), "calls builtins.set"),
    "a text encoded again and again": (
        b"\x80\x02X\xe8\x03\x00\x00" + b"a" * 1000 + b"q\x00" + ENCODED * 20 + b".",
        "copies more bytes",
    ),
    "sets without end": (b"\x80\x02" + b"\x8f" * 9 + b".", "EMPTY_SET"),
    "an object's methods": (
        called(b"collections\nOrderedDict")[:-1] + b"}X\x05\x00\x00\x00itemsNsb.",
        "changes an object",
    ),
    "a shape of a thousand numbers": (called(b"torch\nSize", b"(" + b"K\x02" * 1000 + b"t"), "calls torch.Size"),
    "a key that is deep": (b"\x80\x02}K\x01" + b"\x85" * 200_000 + b"Ns.", "deep"),
    "another codec": (called(b"_codecs\nencode", b"X\x01\x00\x00\x00a", b"X\x04\x00\x00\x00zlib"), "_codecs.encode"),
    "newer instructions": (pickle.dumps({"a": 1}, protocol=4), "FRAME"),
    "an object of a class": (b"\x80\x02ctorch\nSize\n)\x81.", "NEWOBJ"),
    "nothing on the stack": (b"\x80\x02R.", "IndexError"),
    "no memo": (b"\x80\x02h\x07.", "KeyError"),
    "no mark": (b"\x80\x02t.", "IndexError"),
    "cut off": (b"\x80\x02X\xff\xff\xff\x7fabc", "expected"),
    "no end": (b"\x80\x02}", "exhausted"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_weights_do_not_need_is_refused_before_it_is_built(name, tmp_path):
    content, message = HOSTILE[name]
    with pytest.raises((RefusedPickle, DamagedPickle), match=message):
        scan_pickle(io.BytesIO(content), 10_000)
    path = tmp_path / "weights.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", "3\n")
    with pytest.raises(CheckpointError, match=r"weights\.pt: .*(it was not opened|not a whole torch file)"):
        read_state(path)


def test_an_old_file_is_read_through_before_it_is_opened(tmp_path):
    """torch's old form is five pickles in a row; the fourth has the content."""
    torch.save({"a": torch.ones(2)}, tmp_path / "good.pt", _use_new_zipfile_serialization=False)
    assert read_state(tmp_path / "good.pt")["a"].tolist() == [1, 1]
    head = [pickle.dumps(value, protocol=2) for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    bomb = called(b"__builtin__\nbytearray", number(5 * 10**9))
    (tmp_path / "bomb.pt").write_bytes(b"".join([*head, bomb, pickle.dumps([], protocol=2)]))
    with pytest.raises(CheckpointError, match="bytearray"):
        read_state(tmp_path / "bomb.pt")


def test_a_zip_that_readers_see_differently_is_refused(tmp_path):
    bomb, path = called(b"__builtin__\nbytearray", number(5 * 10**9)), tmp_path / "weights.pt"
    torch.save({"a": torch.ones(2)}, path)
    good = path.read_bytes()
    for names in (["archive/data.PKL"], ["archive/data.pkl", "archive/DATA.pkl"], ["archive/other.pkl"], ["data.pkl"]):
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, bomb)
        with pytest.raises(CheckpointError, match=r"it was not opened|not a zip file from torch\.save"):
            read_state(path)
    path.write_bytes(good + good)  # two directories: zipfile reads the last one, others the one that its end names
    with pytest.raises(CheckpointError, match=r"not a zip file from torch\.save"):
        read_state(path)


def test_the_directory_of_a_large_zip_is_found(tmp_path, monkeypatch):
    """Files of more than 4 GB have another end."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    with zipfile.ZipFile(tmp_path / "weights.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}, protocol=2))
    assert (tmp_path / "weights.pt").read_bytes()[-42:-38] == b"PK\6\7"
    assert _index_of(tmp_path / "weights.pt").filename == "archive/data.pkl"


@given(st.lists(st.sampled_from([*b"\x80()}]Nq\x00h\x85\x86\x87tsuaeQRb.0K\x01"]), max_size=60))
def test_any_instructions_pass_or_are_refused(codes):
    try:
        scan_pickle(io.BytesIO(bytes([0x80, 2, *codes])), 1000)
    except (RefusedPickle, DamagedPickle):
        pass


def test_a_declared_length_is_no_reason_to_take_memory():
    with pytest.raises(DamagedPickle):
        scan_pickle(io.BytesIO(b"\x80\x02X" + struct.pack("<I", 0xFFFFFFF0)), 100)


def test_threads_read_files_with_numpy_values_at_the_same_time(tmp_path):
    """A run opens a world while the window Get weights looks at it; torch has one allow-list for all threads."""
    path = tmp_path / "weights.pt"
    torch.save({"module": {"a": torch.ones(2)}, "random": GOOD["numpy"]}, path)
    allowed = set(torch.serialization.get_safe_globals())
    with ThreadPoolExecutor(4) as pool:
        sources = list(pool.map(lambda _: PickleSource(path, "module"), range(200)))
    assert all(source.tensor("a").tolist() == [1, 1] for source in sources)
    assert set(torch.serialization.get_safe_globals()) == allowed, "nothing stays allowed for others"
