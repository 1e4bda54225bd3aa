-- The MurmurHash3 of each term (32 bits, seed 42), on Hive: by TRANSFORM. The session needs `ADD ARCHIVE` of
-- environment.tgz and textmill.zip (jobs/query.py: --resource).
--
-- In:   term_counts (id, term, tf).
-- Out:  term, murmur3.
--
-- param: term_counts identifier term_counts
SELECT decode(unhex(t.term), 'UTF-8') AS term, t.murmur3
FROM (
  SELECT TRANSFORM(hex(term), hex(term))
    USING 'environment.tgz/bin/python textmill.zip/udfs/hive.py murmur3'
    AS (term string, murmur3 int)
  FROM (SELECT DISTINCT term FROM :term_counts) d
) t
