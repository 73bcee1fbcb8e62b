"""Finding a code that was written in another way, on tables of distinct codes: never on events.

A code is looked up in five ways, and the first that finds something decides:

    0  as it is written, without outer blanks
    1  in any letter case
    2  with leading zeros lost before a dot      10.1   finds 010.1
    3  without dots, blanks and dashes           E119   finds E11.9
    4  ... and with leading zeros lost           85     finds 008.5

A way may find several codes; when they do not agree, the code is ambiguous and counts as not found.
Dotted codes of vocabularies with a fixed number of digits before the dot first get their zeros
back.
"""

from daniel.data.engine import Engine

WAYS = ("as written", "letter case", "leading zeros", "dots", "dots and leading zeros")
DIGITS = {"ICD9CM": 3, "ICD9PROC": 2, "PHECODE": 3}  # before the dot

_PADDED = " ".join(
    f"WHEN vocabulary_key = '{v}' AND regexp_full_match(c, '[0-9]{{1,{n}}}\\.[0-9]+') "
    f"THEN lpad(split_part(c, '.', 1), {n}, '0') || split_part(c, '.', 2)"
    for v, n in DIGITS.items()
)
MACROS = f"""
CREATE MACRO key_of(v) AS upper(regexp_replace(v, '[^\\p{{L}}\\p{{N}}]', '', 'g'));
CREATE MACRO tidy(c) AS trim(regexp_replace(c, '[\\s\\p{{Cc}}]+', ' ', 'g'));
CREATE MACRO plain(vocabulary_key, c) AS CASE {_PADDED}
    ELSE upper(regexp_replace(c, '[. -]', '', 'g')) END;
"""
# Of each way: the key of a code that is looked up, and that of a code of the reference.
KEYS = (
    ("code", "code"),
    ("upper(code)", "upper(code)"),
    ("CASE WHEN contains(code, '.') THEN upper(code) END", "ltrim(upper(code), '0')"),
    ("plain(vkey, code)", "plain(vkey, code)"),
    (
        "CASE WHEN NOT contains(code, '.') THEN plain(vkey, code) END",
        "ltrim(plain(vkey, code), '0')",
    ),
)


def find(engine: Engine, asked: str, reference: str) -> None:
    """Look up asked(vkey, code) in reference(vkey, code, value).

    Makes the table found(vkey, code, way, agree, entry, value) of the codes that were found.
    entry: the code of the reference.  agree: whether all that fit have the same value.
    """
    asking = " UNION ALL ".join(
        f"SELECT vkey, code, {way} AS way, {ask} AS key FROM asked"
        for way, (ask, _) in enumerate(KEYS)
    )
    known = " UNION ALL ".join(
        f"SELECT vkey, code AS entry, {way} AS way, {has} AS key, value FROM {reference}"
        for way, (_, has) in enumerate(KEYS)
    )
    engine.run(
        f"""
        CREATE OR REPLACE TABLE found AS
        WITH asked AS ({asked}), hit AS (
            SELECT vkey, code, way, min(entry) AS entry, arg_min(value, entry) AS value,
                count(DISTINCT value) = 1 AS agree
            FROM ({asking}) JOIN ({known}) USING (vkey, way, key) GROUP BY vkey, code, way
        )
        SELECT vkey, code, min(way) AS way, arg_min(agree, way) AS agree,
            arg_min(entry, way) AS entry, arg_min(value, way) AS value
        FROM hit GROUP BY vkey, code
        """
    )
