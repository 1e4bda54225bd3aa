-- MinHash signatures (Broder 1997): two documents agree in about that share of a signature's places in which their sets
-- of terms agree. The hashes are (a x + b) mod 4294967311, where x is of md5(term), a and b of md5 of the place.
--
-- In:   ngrams (id, term): what a document's set holds; say terms of three tokens.
-- Out:  id, place (from 0), value. A document without terms has none.
--
-- param: ngrams identifier ngrams
-- param: places int 64 (1 to 1024)
--
-- Example
--   given ngrams (id string, position int, tokens int, term string)
--     a | 0 | 1 | cat
--     a | 1 | 1 | sat
--     a | 2 | 1 | cat
--     b | 0 | 1 | sat
--     b | 1 | 1 | cat
--   given places = 2
--   gives
--     a | 0 | 326208891
--     a | 1 | 855214523
--     b | 0 | 326208891
--     b | 1 | 855214523
SELECT t.id, h.place, min((h.a * t.x + h.b) % 4294967311) AS value
FROM (
  SELECT DISTINCT id, cast(conv(substr(md5(term), 1, 8), 16, 10) AS bigint) AS x
  FROM :ngrams
) t
CROSS JOIN (
  SELECT place,
    1 + cast(conv(substr(md5(concat('a', cast(place AS string))), 1, 8), 16, 10) AS bigint) % 2147483647 AS a,
    cast(conv(substr(md5(concat('b', cast(place AS string))), 1, 8), 16, 10) AS bigint) % 2147483647 AS b
  FROM (SELECT space(:places - 1) AS spaces) n
  LATERAL VIEW posexplode(split(n.spaces, ' ')) p AS place, nothing
) h
GROUP BY t.id, h.place
