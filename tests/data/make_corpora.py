"""Make the shipped corpora from fetched ones: `python tests/data/make_corpora.py [DIR=data]`, by hand, from the root.

Needs `python benchmarks/fetch_data.py --only spam-assassin libreoffice-help`; writes, the same bytes each time,
emails.jsonl.gz, names.sha256.gz and libreoffice_help_zh.jsonl.gz beside this file. What is masked: see LICENCES.md.
"""

import email
import email.utils
import gzip
import hashlib
import json
import logging
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.fetch_data import Row, header_text  # noqa: E402

log = logging.getLogger("make_corpora")

EMAILS = 2800
EMAIL_CHARACTERS = (80, 3200)
HELP_CHARACTERS = 20  # Chinese ones
HAN = re.compile(r"[\u3400-\u9fff]")
SALT = b"textmill-names-1:"

# --- names -----------------------------------------------------------------------------------------------------------

LETTERS = re.compile(r"[^\W\d_]+")
# Words that stand in display names of firms, lists and offers. A pair with one of them is no personal name.
NO_NAME = frozenset(
    """a about above account ad ads advertising advisories advisory age agency alert alerts all an and announce
    answers any aol apple arbor are as assassin at auto auction award bank best better big boards business buy
    buyer buyers by calls card cards carte cash celebs center centre champion cheap cheapest chick claim club
    cnet coin com committee communications communigate company components computer confirmation congratulations
    consultant consultants consultation cool corp corporation cost credit cs customer daily date dating deal
    deals debt degree degrees delivers dental department desk dept destinatarios developers devel digest digital
    direct director discount discounts discussion discussions dispatch distribution dns download dvds easy ebay
    edition editor email emails employment enews enlargement enquiries enterprise enterprises equity excite
    exclusive experts express fairlane fat fax fellow finance financial find flush fool for forever forum
    foundation fr free freemail freshrpms friend from ftp fulfillment fund fwd gear gift girls get global gold
    government great greencard group growth guide guest hardware has hat health help home hormone host hot hotel
    hotmail how hp hr html hosting human id if important in inc income industries info infos information
    injection ink insider institute insurance international internet investment investments investor iq irish is
    it job join la last learning legal life lifetime linux list lista lists live loan loans locker lockergnome
    lose lottery low lowest ltd lug lycos mac mag magazine mail mailer mailing management manager many market
    marketing media medical member members membership message mexico ml mlm monthly mortgage motor msn music my
    naked nan net netnoir netscape netnoteinc network networks new news newsletter nl no non notice notification
    now oculta of off offer offers office official on online only opt or order orders org orphan our pal partner
    partners party pc pharmacy phone pilot plans post pp prank press price prices prize pro product products
    professional program project promotion promotions pros protocol quality quick quote quotes rate rates razor
    real record records recipient recipients reduce relations release replicas report reports request research
    results review reviews robot rpm ru safe sale sales samples save savings search seasons secret secure
    security securityfocus sell serv server service services settlement sex shell shop shopper shoppers shopping
    sites site slim sluts smokes society software solution solutions sound spam spamassassin special specialist
    specials staff starband steaks stock store street subscribers subscription subscriptions success sun super
    supplies support survey system systems taint talk team tech technical technician technologies technology
    test the theserverside this tickets times tips to today top toner tour trade travel travelers trim
    undisclosed uni unlimited unsubscribe update updates url us usa user users viagra videos virus wall wanadoo
    warranty watch web webappsec webmaster website week weekly weight win windows winner with worker workers
    works world www xp xxx xxxxxxxxx yahoo year you young your yyyy zdnet zzzz""".split()
)
# Given names that are masked with the capitalised word after them, besides those of the corpus.
GIVEN = frozenset(
    """aaron adam alan alex alice andrea andrew andy angela ann anna anne anthony arthur barbara ben betty bill
    bob brandon brenda brian bruce carl carol caroline catherine charles chris christine christopher cindy
    claire colin craig cynthia dan daniel dave david deborah dennis diana diane donald donna dorothy doug
    douglas ed edward elizabeth emily emma eric erik ernest eugene eva frank fred gary george gerald gina gordon
    greg gregory harold harry heather helen henry howard ian jack jacob james jane janet jason jean jeff jeffrey
    jennifer jeremy jerry jessica jim jimmy joan joe john johnny jonathan joseph joshua juan judith judy julia
    julie justin karen karl kate kathleen kathy katie keith kelly ken kenneth kevin kim kimberly kristin larry
    laura lawrence leonard leslie lewis linda lisa louis louise lucy luke marc margaret maria marie marilyn mark
    martha martin mary matt matthew melissa michael michelle mike nancy nathan neil nicholas nick nicole nigel
    oliver oscar pamela patricia patrick paul paula peter phil philip philippe rachel ralph ray raymond rebecca
    richard rob robert roger ronald ronnie ruth ryan sam samantha samuel sandra sara sarah scott sean sharon
    shirley simon stanley stephanie stephen steve steven stuart sue susan ted teresa terry theresa thomas tim
    timothy todd tom tony tracy vanessa victor victoria vincent virginia walter wayne wendy william""".split()
)
TITLES = frozenset("mr mrs ms miss dr prof sir rev barrister engr capt chief phd md jr sr iii esq cpa".split())


def key(word: str) -> str:
    """A word without accents and case, as names are compared."""
    return "".join(c for c in unicodedata.normalize("NFKD", word).casefold() if not unicodedata.combining(c))


def digest(name: str) -> bytes:
    """8 bytes that stand for a lower-cased "first last" in names.sha256.gz."""
    return hashlib.sha256(SALT + name.encode()).digest()[:8]


def words_and_pairs(text: str) -> tuple[list[re.Match[str]], Iterator[tuple[int, int]]]:
    """The runs of letters of a text, and the index pairs that may be first and last name, a lone initial between."""
    words = list(LETTERS.finditer(text))

    def pairs() -> Iterator[tuple[int, int]]:
        for i in range(len(words) - 1):
            yield i, i + 1
            if i + 2 < len(words) and len(words[i + 1][0]) == 1:
                yield i, i + 2

    return words, pairs()


@dataclass(frozen=True)
class Names:
    """The names of a corpus: full names as (first, last) keys, and the given names among them."""

    full: frozenset[tuple[str, str]]
    given: frozenset[str]

    def is_full(self, first: str, last: str) -> bool:
        """Whether two keys are first and last name, in either order."""
        return (first, last) in self.full or (last, first) in self.full

    def is_run_together(self, word: str) -> bool:
        """Whether a key is a full name without a space: johnsmith."""
        return len(word) >= 8 and any(self.is_full(word[:i], word[i:]) for i in range(3, len(word) - 2))


def people(raw: bytes) -> Iterator[list[str]]:
    """The words of each display name in the address headers of a message, titles and initials left out."""
    message = email.message_from_bytes(raw)
    for header in ("from", "to", "cc", "reply-to", "sender", "resent-from", "resent-to", "x-sender"):
        for value in message.get_all(header, []):
            text = re.sub(r"\s+", " ", str(value))
            found = [name for name, _ in email.utils.getaddresses([text])]
            found += re.findall(r'"?([^"<>,;@]+)"?\s*<', text) + re.findall(r"\(([^()@]+)\)", text)
            for name in found:
                name = header_text(name)
                if "@" in name:
                    continue
                last, comma, first = name.partition(", ")
                words = LETTERS.findall(re.sub(r"\(.*?\)|\[.*?\]", " ", f"{first} {last}" if comma else name))
                words = [word for word in words if len(word) > 1 and key(word) not in TITLES]
                if 1 <= len(words) <= 4:
                    yield words


def correspondents(raw: bytes) -> frozenset[str]:
    """The single names of the people in the headers of a message, and the login of its sender."""
    found = {key(word) for name in people(raw) for word in name}
    sender = email.utils.parseaddr(str(email.message_from_bytes(raw)["from"] or ""))[1].partition("@")[0]
    found |= {key(word) for word in LETTERS.findall(sender)}
    return frozenset(word for word in found - NO_NAME if len(word) > 2)


def collect_names(mails: Iterable[bytes], bodies: Iterable[str]) -> Names:
    """The personal names in the address headers; pairs of words that bodies mostly write in lower case are none."""
    lower: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for body in bodies:
        for word in LETTERS.findall(body):
            count[key(word)] += 1
            lower[key(word)] += word[0].islower()

    def common(word: str) -> bool:
        return lower[word] > 10 and lower[word] > 0.6 * count[word]

    full: set[tuple[str, str]] = set()
    for raw in mails:
        for words in people(raw):
            keys = [key(word) for word in words]
            for pair in {*pairwise(keys), (keys[0], keys[-1])}:
                known = pair[0] in GIVEN and pair[1] not in {"and", "the", "to", "for", "of", "on", "in", "at"}
                if pair[0] != pair[1] and (known or not NO_NAME & {*pair}) and not all(map(common, pair)):
                    full.add(pair)
    firsts = Counter(first for first, _ in full)
    lasts = Counter(last for _, last in full)
    given = {w for w, n in firsts.items() if n >= 2 and n > lasts[w] and len(w) > 2 and lower[w] < 0.3 * count[w]}
    given -= NO_NAME
    return Names(frozenset(full), GIVEN | given)


# --- masks -----------------------------------------------------------------------------------------------------------

QUOTE = r"^(?P<quote>[ \t]*(?:[A-Za-z]{0,3}[>|}:][ \t]?)*[ \t]*)"
HEADER = re.compile(
    r"^[\s>|:*}-]*(?:received|from|to|cc|bcc|reply-to|sender|return-path|delivered-to|message-id|in-reply-to|references"
    r"|date|sent|subject|errors-to|precedence|importance|priority|organi[sz]ation|user-agent|mailer|posted-by"
    r"|envelope-to|apparently-to|newsgroups|mime-version|list-[\w-]+|content-[\w-]+|x-[\w-]+|resent-[\w-]+"
    r"|disposition[\w-]*|boundary|charset|name|filename)[*]?[ \t]?[:=](?!//).*$"
    r"(?:\n[ \t>|]+(?:by|with|for|id|from|boundary|charset|name|filename|[;(<]|\w+, \d).*$|\n[ \t]+<?\S+@\S+.*$)*\n?",
    re.I | re.M,
)
DROPPED = (
    re.compile(r"-----BEGIN PGP (?:SIGNATURE|PUBLIC KEY)[\s\S]*?(?:-----END PGP [A-Z ]+-----|\Z)"),
    re.compile(r"-----BEGIN PGP SIGNED MESSAGE-----\s*(?:Hash: \S+)?\n?"),
    re.compile(r"^[>\s]*From \S+@\S+.*$\n?", re.M),  # mbox
    re.compile(r"^[>\s]*--+[=_]*\S*(?:part|boundary|mixed|=_)\S*$\n?", re.I | re.M),  # MIME boundary
    re.compile(r"(?:^[>\s]*\S{56,}\s*$\n?){3,}", re.M),  # base64, uuencode
)
ADDRESSES = (
    re.compile(
        r"(?:mailto:)?[<(\[]?[\w.+%=&'*/~!#$^{}|-]+(?:@|\(at\)|\[at\]| at (?=[\w-]+\.(?:com|org|net)\b))"
        r"(?:[\w-]+(?:\.|$|(?=\W)))*[\w-]*[>)\]]?",
        re.I,
    ),
    re.compile(r"\S*@(?!\d\d?:\d)\S*\w\S*"),
)
HOME = re.compile(r"(?:/~|%7[eE]|/(?:home|users|people|members)/)[\w.-]+")
PHONE = re.compile(
    r"(?<![\w$.,/=?&#%-])(?:"
    r"(?:\+?1[ ./-]{0,2})?(?:\(\s?\d{3}\s?\)|\d{3})[ ./*-]{0,3}\d{3}[ ./*-]{1,3}\d{4}"
    r"|\+\(?\d[\d ()./-]{6,}\d"
    r"|(?:00|011)[ -]?\d{2,3}[ -][\d -]{6,}\d"
    r"|\(?0\d{1,4}\)?[ /-]+\d{3,4}[ -]?\d{3,4}"
    r"|\d{3}[.-]\d{4}"
    r"|1?[ -]?\(?8(?:00|88|77|66)\)?[ -][A-Z\d][A-Z\d -]{5,}[A-Z\d]"
    r"|(?:\d{2,4}[ -]){3,}\d{2,4}"
    r"|\d{10,12}"
    r"|\(\d{2,4}\)[ -]*\d{3,4}[ -]\d{3,4}"
    r")(?![\w:])(?:\s*(?:x|ext)\.?\s*\d+)?"
)
NAMED_PHONE = re.compile(
    r"(\b(?:tele)?(?:phone|fax|tel|mobile|cell|call|ph|pager|gsm)\b[^\d\n]{0,15}?)[\d(+][\d ()./+-]{5,}\d", re.I
)

PERSON = r"[^\W\d_a-z][\w.'’-]*(?:[ \t]+[^\W\d_a-z][\w.'’-]*){0,3}"
BESIDE_ADDRESS = re.compile(rf"[\"'“]?{PERSON}[\"'”]?(?=[ \t]*\n?[ \t>]*EMAIL)|(?<=EMAIL) \({PERSON}\)")
ATTRIBUTION = re.compile(
    QUOTE + r"(?:(?:On|At|In|Le|El|Am|Op|Once upon a time|Thus spake)\b(?:(?!\n\n)[\s\S]){0,150}?"
    r"\b(?:wrote|writes|schrieb|escribi[oó]|[ée]crit|scrisse|typed)\b[^\n:]{0,30}:+-?\s*$"
    r"|[^\n]{0,120}\b(?:wrote|writes)\b[^\n:]{0,20}:+-?[ \t]*$"
    r"|Quoting [^\n]{0,120}:[ \t]*$"
    r"|[ \t-]*(?:original message|forwarded by|forwarded message)[^\n]*$)",
    re.M | re.I,
)
SAID = re.compile(rf"(?<![\w.]){PERSON}(?=[ \t]+(?:said|says|writes|wrote|asked|replied|added)\b)")
NO_SPEAKER = frozenset("I He She It They We You Who That This What As The Someone Everyone One EMAIL NAME".split())
GREETING = re.compile(
    QUOTE + r"(?P<word>dear|hi|hello|hey|greetings|attn|attention|good (?:morning|day|afternoon|evening)|howdy|yo"
    r"|dearest|hiya|hallo|salut)(?P<gap>[ \t,:]+)(?P<name>(?!(?:all|folks|everyone|everybody|there|guys|friends?|sirs?"
    r"|madam|customer|member|list|world|again|and|user|subscriber|people|ladies|gentlemen|colleagues?|homeowner"
    r"|applicant|fellow|reader|i|we|my|the|this|your?|it|just|here|if|is|in|to)\b)[^\W\d_][\w.'’-]*"
    r"(?:[ \t]+[^\W\d_a-z][\w.'’-]*){0,3})(?=[ \t]*(?:[,!:;.-]|$))",
    re.M | re.I,
)
CLOSE = (
    r"(?:(?:with|all|the|my|our|many|very|best|kind|kindest|warm|warmest|yours?|cordial)[ \t]+){0,3}"
    r"(?:best|regards?|rgds|wishes|sincerely|truly|faithfully|respectfully|cordially|cheers|thanks|thank you|thanx|thx"
    r"|tia|ciao|bye|love|slainte|take care|later|peace|adieu|greetings|gruss|gr[üu](?:ss|ß)e|salutations|in advance"
    r"|god bless(?: you)?|hth|enjoy|your friend)(?:[ \t]+(?:in advance|again|a lot|so much|very much|all|and regards"
    r"|for your \w+|for the \w+|for any \w+|yours|you|now))*"
)
CLOSING = re.compile(
    QUOTE + rf"(?P<close>{CLOSE})(?P<mark>[ \t]*[,.!:;-]*[ \t]*\n(?:[>|\s]*\n){{0,3}}[>| \t]*[-~]{{0,2}}[ \t]*)"
    r"(?P<name>[^\W\d_][^\n;:!?@\d]{0,40}?)(?P<end>[ \t]*[,.]?[ \t]*$)"
    r"(?:\n[>| \t]*[A-Z][\w.'’-]*(?: [A-Z][\w.'’-]*){1,2}[ \t]*$)?",
    re.M | re.I,
)
SIGNED_OFF = re.compile(rf"(?P<close>\b(?i:{CLOSE})[ \t]*[,.!-]+[ \t]*){PERSON}(?P<end>[ \t]*[.]?[ \t]*$)", re.M)
SIGNED = re.compile(rf"(?P<dash>^[ \t]*(?:[-–—~*_/]{{1,3}}|love|xo+)[ \t]*){PERSON}[ \t]*$", re.M)
SIGNATURE = re.compile(
    r"(^(?P<quote>[>|]*)[> |]{0,2}-- ?$\n)(?:^(?P=quote)(?![>|]|[ >|]*[_=*-]{6,})[^\n]*$\n?){1,12}", re.M
)
BY = re.compile(
    r"(?P<by>(?:(?i:\b(?:my name is|name\s*:|contact(?: person)?\s*:?|attn\s*:|ask for|posted by|forwarded by|written"
    r" by|signed|manager|president|director|owner|mr|mrs|ms|dr|prof|barrister|engr|egnr|chief)\b)\.?|^[ \t>]*[Bb]y)"
    rf"[ \t,]*){PERSON}",
    re.M,
)
I_AM = re.compile(rf"(?P<by>\b(?i:i am|i'm|this is)[ \t]+)[^\W\d_a-z][\w.'’-]+[ \t]+{PERSON}")


def mask(text: str, names: Names, participants: frozenset[str]) -> str:
    """The body of an e-mail without headers, addresses, telephone numbers and names; see LICENCES.md."""
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", " ", text.replace("\xa0", " "))
    text = re.sub(r"[ \t]+$", "", text, flags=re.M)
    for pattern in DROPPED:
        text = pattern.sub("", text)
    text = ATTRIBUTION.sub(r"\g<quote>NAME wrote:", text)
    while HEADER.search(text):
        text = HEADER.sub("", text)
    for pattern in ADDRESSES:
        text = pattern.sub("EMAIL", text)
    text = BESIDE_ADDRESS.sub("NAME", text)
    text = PHONE.sub("PHONE", NAMED_PHONE.sub(r"\1PHONE", text))
    text = HOME.sub("/~NAME", text)
    text = SIGNATURE.sub(r"\1\g<quote>NAME\n", text)
    text = GREETING.sub(r"\g<quote>\g<word>\g<gap>NAME", text)
    text = CLOSING.sub(_mask_closing, text)
    text = SIGNED_OFF.sub(r"\g<close>NAME\g<end>", text)
    text = SIGNED.sub(r"\g<dash>NAME", text)
    text = I_AM.sub(r"\g<by>NAME", BY.sub(r"\g<by>NAME", text))
    text = SAID.sub(lambda found: found[0] if found[0].split()[0] in NO_SPEAKER else "NAME", text)
    text = mask_names(text, names, participants)
    text = re.sub(r"NAME(?:[ \t.,-]{1,2}(?:[A-Z]\.? )?NAME)+", "NAME", text)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", text, flags=re.M)).strip()


def _mask_closing(found: re.Match[str]) -> str:
    if len(found["name"].split()) > 5 or len(found["close"]) > 60:
        return found[0]
    return f"{found['quote']}{found['close']}{found['mark']}NAME{found['end']}"


def mask_names(text: str, names: Names, participants: frozenset[str]) -> str:
    """Mask full names wherever they stand, given names with a capitalised word after them, and correspondents."""
    words, pairs = words_and_pairs(text)
    keys = [key(word[0]) for word in words]
    hit: set[int] = set()
    for i, j in pairs:
        first, last = words[i], words[j]
        given = keys[i] in names.given and first[0][0].isupper() and last[0][0].isupper() and len(last[0]) > 1
        given = given and bool(re.fullmatch(r"[ \t]+(?:[A-Z]\.? )?", text[first.end() : last.start()]))
        if given or names.is_full(keys[i], keys[j]):
            hit.update(range(i, j + 1))
    for i, word in enumerate(words):
        start, end = text.rfind("\n", 0, word.start()) + 1, text.find("\n", word.end())
        around = text[start : word.start()].strip(" \t>|-~") + text[word.end() : None if end < 0 else end]
        alone = not around.strip(" \t.,-")
        correspondent = keys[i] in participants and (word[0][0].isupper() or alone)
        if correspondent or (alone and keys[i] in names.given) or names.is_run_together(keys[i]):
            hit.add(i)
    parts, at = [], 0
    for i in sorted(hit):
        parts += [text[at : words[i].start()], "NAME"]
        at = words[i].end()
    return "".join(parts) + text[at:]


def still_named(text: str, names: Names) -> bool:
    """Whether a full name is left: two masks side by side may bring new pairs together."""
    words, pairs = words_and_pairs(text)
    return any(names.is_full(key(words[i][0]), key(words[j][0])) for i, j in pairs)


# --- the corpora -----------------------------------------------------------------------------------------------------


def content_order(row: Row) -> bytes:
    """A shuffle that depends on nothing but the text."""
    return hashlib.sha256(str(row["text"]).encode()).digest()


def make_emails(folder: Path, rows: list[Row]) -> tuple[list[Row], Names]:
    """EMAILS masked bodies of middling length, each source group with its share, chosen by content hash."""
    raws = {str(row["id"]): (folder / f"{row['id']}.txt").read_bytes() for row in rows}
    names = collect_names(raws.values(), (str(row["text"]) for row in rows))
    groups = Counter(str(row["group"]) for row in rows)
    masked: dict[str, list[Row]] = {group: [] for group in groups}
    seen: set[str] = set()
    for row in rows:
        least, most = EMAIL_CHARACTERS
        if not least <= len(str(row["text"])) <= 2 * most:
            continue
        participants = correspondents(raws[str(row["id"])])
        text = mask(str(row["text"]), names, participants)
        if still_named(text, names):
            text = mask_names(text, names, participants)
        if not least <= len(text) <= most or text in seen or "\ufffd" in text or still_named(text, names):
            continue
        seen.add(text)
        identifier = hashlib.sha256(text.encode()).hexdigest()[:16]
        masked[str(row["group"])].append({"id": identifier, "text": text, "label": row["label"]})
    chosen: list[Row] = []
    for group, size in groups.items():
        chosen += sorted(masked[group], key=content_order)[: round(EMAILS * size / len(rows))]
    return sorted(chosen, key=content_order), names


def make_help(rows: list[Row]) -> list[Row]:
    """The help pages cut down to their translated lines, without repeats and those of hardly more than a title."""
    chosen, seen = [], set()
    for row in rows:
        text = "\n".join(line for line in str(row["text"]).split("\n") if HAN.search(line))
        if len(HAN.findall(text)) >= HELP_CHARACTERS and text not in seen:
            seen.add(text)
            chosen.append({"id": row["id"], "text": text, "label": row["label"]})
    return chosen


def write(path: Path, data: bytes) -> None:
    """Compress without time and name, so that the same data give the same bytes."""
    path.write_bytes(gzip.compress(data, 9, mtime=0))
    log.info("%s: %d bytes", path.name, path.stat().st_size)


def jsonl(rows: list[Row]) -> bytes:
    """Rows as JSON Lines in UTF-8."""
    log.info("%d rows: %s", len(rows), dict(Counter(str(row["label"]) for row in rows)))
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def read(path: Path) -> list[Row]:
    """Rows of a JSON Lines file."""
    return [json.loads(line) for line in path.open(encoding="utf-8")]


def main(folder: Path) -> None:
    """Write the three files."""
    rows = read(folder / "spam-assassin.jsonl")
    emails, names = make_emails(folder / "spam-assassin", rows)
    write(HERE / "emails.jsonl.gz", jsonl(emails))
    log.info("%d full names, %d given names", len(names.full), len(names.given))
    write(HERE / "names.sha256.gz", b"".join(sorted(digest(f"{first} {last}") for first, last in names.full)))
    write(HERE / "libreoffice_help_zh.jsonl.gz", jsonl(make_help(read(folder / "libreoffice-help.jsonl"))))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "data")
