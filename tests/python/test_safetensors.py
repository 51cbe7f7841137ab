# SPDX-License-Identifier: Apache-2.0
"""The command's reader of safetensors files, beside the reference implementation.

What the reference writes or refuses is compared with what the reader says through the program safetensors_dump.
"""

import json
import os
import random
import struct
import subprocess

import numpy as np
import pytest

safetensors = pytest.importorskip("safetensors", "0.8", reason="no safetensors 0.8 or newer: dev/setup installs it")
import safetensors.numpy  # noqa: E402

DUMP = os.environ.get("TENON_TEST_SAFETENSORS")
pytestmark = pytest.mark.skipif(DUMP is None, reason="the command is not built")
AT_ONCE = 400

# The name of each type, and its name in tenon; without one, tenon has no such type. And its bits.
TYPES = {
    "BOOL": ("bool", 8), "F4": (None, 4), "F6_E2M3": (None, 6), "F6_E3M2": (None, 6), "U8": ("uint8", 8),
    "I8": ("int8", 8), "F8_E5M2": ("float8_e5m2", 8), "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8), "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8), "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "I16": ("int16", 16), "U16": ("uint16", 16), "F16": ("float16", 16), "BF16": ("bfloat16", 16),
    "I32": ("int32", 32), "U32": ("uint32", 32), "F32": ("float32", 32), "C64": ("complex64", 64),
    "F64": ("float64", 64), "I64": ("int64", 64), "U64": ("uint64", 64),
}  # fmt: skip

# What the reader refuses and the reference accepts; safetensors.h says so, too.
STRICTER = [
    "the header has this name twice", "has two entries of the key", "is none of the format", "has a NUL in it",
    "not an object", "the name of a tensor is empty", "a key of a store at most", "tenon has at most 32",
    "is not a whole number of bytes", "2^63 bytes or more", "is out of range", "the '{' of __metadata__",
    "not with '{'", "duplicate object key",
]  # fmt: skip


def dump(paths):
    """What the reader says of these files, in their order."""
    said = []
    for i in range(0, len(paths), AT_ONCE):
        done = subprocess.run([DUMP, *map(str, paths[i : i + AT_ONCE])], capture_output=True, check=True, timeout=120)
        said += [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == len(paths)
    return said


def build(header, data=b"", length=None):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def reference(file):
    """The tensors as the reference reads them: {name: (dtype, shape, data)}; None: refused."""
    try:
        return {name: (t["dtype"], t["shape"], bytes(t["data"])) for name, t in safetensors.deserialize(file)}
    except safetensors.SafetensorError:
        return None


def reader(said):
    tensors = [t for file in said["files"] for t in file["tensors"]]
    found = {t["name"]: (t["dtype"], t["shape"], bytes.fromhex(t["data"])) for t in tensors}
    assert len(found) == len(tensors)
    return found


def in_tenon(tensors):
    return {name: (TYPES[dtype][0], shape, data) for name, (dtype, shape, data) in tensors.items()}


def compare(tmp_path, files):
    """Compare the two on each file. @return how many both accept, both refuse, and only the reader refuses"""
    paths = [tmp_path / f"{i}.safetensors" for i in range(len(files))]
    for path, file in zip(paths, files):
        path.write_bytes(file)
    both, neither, stricter = 0, 0, 0
    for path, file, said in zip(paths, files, dump(paths)):
        path.unlink()
        expected = reference(file)
        if "error" in said:
            assert said["error"].startswith(str(path)), said
            known = any(words in said["error"] for words in STRICTER)
            assert expected is None or known, (said["error"], file)
            neither += expected is None
            stricter += expected is not None
        else:
            assert expected is not None, (said, file)
            assert reader(said) == in_tenon(expected), file
            both += 1
    return both, neither, stricter


def test_what_numpy_saves_is_read(tmp_path):
    arrays = {
        f"{np.dtype(dtype).name}.{len(shape)}": np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
        for dtype in "?bBhHiIlLefdF"
        for shape in ((), (3,), (2, 3), (4, 0, 2), (1,) * 20)
    }
    arrays["é \"\\\n\U0001f600"] = np.ones(2, np.float32)
    metadata = {"format": "np", "é\t": "\U0001f600\"\\\n", "": ""}
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file(arrays, path, metadata)
    (said,) = dump([path])
    expected = {name: (str(a.dtype), list(a.shape), a.tobytes()) for name, a in arrays.items()}
    assert reader(said) == expected
    (file,) = said["files"]
    assert file["metadata"] == metadata
    with safetensors.safe_open(path, "np") as opened:
        assert [t["name"] for t in file["tensors"]] == opened.offset_keys()
    assert file["tensors"][-1]["end"] == path.stat().st_size


@pytest.mark.parametrize("dtype", TYPES)
def test_each_type_of_the_format_is_read_or_refused_by_name(tmp_path, dtype):
    name, bits = TYPES[dtype]
    data = bytes(range(bits))  # of 8 elements
    file = build({"a": {"dtype": dtype, "shape": [2, 4], "data_offsets": [0, bits]}}, data)
    assert reference(file) == {"a": (dtype, [2, 4], data)} or dtype == "F4"
    path = tmp_path / "a.safetensors"
    path.write_bytes(file)
    (said,) = dump([path])
    if name is None:
        assert said["status"] == "TN_ERR_UNSUPPORTED" and f"tensor 'a': its dtype {dtype} " in said["error"]
    else:
        assert reader(said) == {"a": (name, [2, 4], data)}


def test_the_list_of_types_is_that_of_the_reference():
    with pytest.raises(safetensors.SafetensorError, match="expected one of") as caught:
        safetensors.deserialize(build({"a": {"dtype": "?", "shape": [1], "data_offsets": [0, 1]}}, b"x"))
    named = str(caught.value).split("expected one of")[1].split(" at line")[0]
    assert {name.strip(" `") for name in named.split(",")} == set(TYPES)


TENSOR = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}
WRONG = {
    "no bytes": b"",
    "seven bytes": b"\2\0\0\0\0\0\0",
    "no header": build(b""),
    "header behind the end": build(b"{}", length=3),
    "header of 2^60 bytes": build(b"{}", length=1 << 60),
    "header of 2^64 - 1 bytes": build(b"{}", length=(1 << 64) - 1),
    "header of 100 MB and a byte": build(b"{}", length=100_000_001),
    "array": build(b"[]"),
    "no JSON": build(b"{]"),
    "text behind the header": build(b"{}x"),
    "NUL behind the header": build(b"{}\0"),
    "byte order mark": build(b"\xef\xbb\xbf{}"),
    "no UTF-8": build(b'{"a\xff":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"x"),
    "half a surrogate": build(b'{"\\ud800":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"x"),
    "no dtype": build({"a": {"shape": [2], "data_offsets": [0, 2]}}, b"xx"),
    "unknown dtype": build({"a": {**TENSOR, "dtype": "U7"}}, b"xx"),
    "dtype twice": build(b'{"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"x"),
    "negative size": build({"a": {**TENSOR, "shape": [-2]}}, b"xx"),
    "minus zero": build(b'{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}'),
    "fraction": build({"a": {**TENSOR, "shape": [2.0]}}, b"xx"),
    "exponent": build(b'{"a":{"dtype":"U8","shape":[2e0],"data_offsets":[0,2]}}', b"xx"),
    "size as text": build({"a": {**TENSOR, "shape": ["2"]}}, b"xx"),
    "size of 2^64": build({"a": {**TENSOR, "shape": [1 << 64]}}, b"xx"),
    "product of 2^64": build({"a": {**TENSOR, "shape": [1 << 32, 1 << 32], "data_offsets": [0, 0]}}),
    "bytes of 2^64": build({"a": {**TENSOR, "dtype": "F64", "shape": [1 << 61], "data_offsets": [0, 0]}}),
    "too few bytes": build({"a": {**TENSOR, "shape": [3]}}, b"xx"),
    "end before begin": build({"a": {**TENSOR, "data_offsets": [2, 0]}}, b"xx"),
    "one offset": build({"a": {**TENSOR, "data_offsets": [2]}}, b"xx"),
    "three offsets": build({"a": {**TENSOR, "data_offsets": [0, 2, 2]}}, b"xx"),
    "gap at the begin": build({"a": {**TENSOR, "data_offsets": [1, 3]}}, b"xxx"),
    "gap": build({"a": TENSOR, "b": {**TENSOR, "data_offsets": [3, 5]}}, b"xxxxx"),
    "overlap": build({"a": TENSOR, "b": {**TENSOR, "data_offsets": [1, 3]}}, b"xxx"),
    "same place": build({"a": TENSOR, "b": TENSOR}, b"xx"),
    "bytes behind the last": build({"a": TENSOR}, b"xxx"),
    "truncated data": build({"a": TENSOR}, b"x"),
    "metadata of numbers": build({"__metadata__": {"a": 1}}),
    "metadata is an array": build({"__metadata__": []}),
    "metadata twice": build(b'{"__metadata__":{},"__metadata__":{}}'),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_the_reference_refuses_is_refused(tmp_path, what):
    assert compare(tmp_path, [WRONG[what]]) == (0, 1, 0)


ONLY_HERE = {
    "not with '{'": build(b" {}"),
    "this name twice": build(b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},'
                             b'"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"x"),
    "two entries": build(b'{"__metadata__":{"a":"b","a":"c"}}'),
    "'strides' is none": build({"a": {**TENSOR, "strides": []}}, b"xx"),
    "NUL in it": build({"a\0": TENSOR}, b"xx"),
    "an array, not an object": build({"a": ["U8", [2], [0, 2]]}, b"xx"),
    "is empty": build({"": TENSOR}, b"xx"),
    "513 bytes": build({"n" * 513: TENSOR}, b"xx"),
    "33 axes": build({"a": {**TENSOR, "shape": [1] * 32 + [2]}}, b"xx"),
    "2^63 bytes or more": build({"a": {**TENSOR, "shape": [0, 1 << 62, 4], "data_offsets": [0, 0]}}),
    "out of range": build({"a": {**TENSOR, "shape": [0, 1 << 63], "data_offsets": [0, 0]}}),
    "__metadata__": build({"__metadata__": None}),
}  # fmt: skip


@pytest.mark.parametrize("words", ONLY_HERE)
def test_what_only_this_reader_refuses_is_known(tmp_path, words):
    assert compare(tmp_path, [ONLY_HERE[words]]) == (0, 0, 1)
    path = tmp_path / "a.safetensors"
    path.write_bytes(ONLY_HERE[words])
    assert words in dump([path])[0]["error"]


def test_a_file_truncated_anywhere_is_refused_by_both(tmp_path):
    file = safetensors.numpy.save({"a": np.arange(3), "b": np.ones((2, 2), np.float16)}, {"k": "v"})
    assert compare(tmp_path, [file]) == (1, 0, 0)
    assert compare(tmp_path, [file[:i] for i in range(len(file))]) == (0, len(file), 0)


def changed(file, rng):
    """The file with a byte, a number or a piece of it changed. The length of its header follows, most of the time."""
    (length,) = struct.unpack("<Q", file[:8])
    header, data = bytearray(file[8 : 8 + length]), file[8 + length :]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(header))
        kind = rng.randrange(6)
        if kind == 0:
            header[at] = rng.randrange(256)
        elif kind == 1:
            del header[at : at + rng.randrange(1, 4)]
        elif kind == 2:
            header[at:at] = rng.choice([b"0", b"-", b"1", b".0", b"e1", b" ", b",", b'"', b"{", b"}", b"\\u0000", b"\\"])
        elif kind == 3:
            digits = [i for i, byte in enumerate(header) if chr(byte).isdigit()]
            if digits:
                header[rng.choice(digits)] = ord(rng.choice("0123456789"))
        elif kind == 4:
            end = min(len(header), at + rng.randrange(1, 40))
            header[at:at] = header[at:end]
        else:
            data += b"x"
    if not header:
        header = bytearray(b"{")
    return build(bytes(header), data, None if rng.random() < 0.9 else max(0, length + rng.randrange(-3, 4)))


@pytest.mark.parametrize("seed", range(4))
def test_changed_files_are_read_as_the_reference_does(tmp_path, seed):
    rng = random.Random(seed)
    plain = build(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I8","shape":[0],"data_offsets":[1,1]}}',
                  b"x")  # fmt: skip
    files = [
        safetensors.numpy.save({"a": np.arange(2, dtype="i2"), "b": np.zeros((1, 0)), "c": np.array(1.5)}, {"k": "v"}),
        safetensors.numpy.save({"layer.0.weight": np.ones((2, 3), "f4"), "layer.0.bias": np.ones(3, "f4")}),
        plain,
    ]
    both, neither, _ = compare(tmp_path, [changed(rng.choice(files), rng) for _ in range(1500)])
    assert both > 20 and neither > 200


def test_a_model_in_several_files_is_read(tmp_path):
    arrays = {f"layer.{i}": np.full((i, 2), i, np.float32) for i in range(9)}
    weight_map = {name: f"model-0000{i % 3 + 1}-of-00003.safetensors" for i, name in enumerate(arrays)}
    for file in set(weight_map.values()):
        safetensors.numpy.save_file({n: a for n, a in arrays.items() if weight_map[n] == file}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 288}, "weight_map": weight_map}, indent=2) + "\n")
    (said,) = dump([index])
    assert reader(said) == {name: ("float32", list(a.shape), a.tobytes()) for name, a in arrays.items()}
    assert [file["path"] for file in said["files"]] == sorted(str(tmp_path / file) for file in set(weight_map.values()))
