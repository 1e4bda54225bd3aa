-- Documents that may be near-duplicates: those that agree in a whole band of their signatures. Each is paired with the
-- first document, by id, of those that agree with it, so that a thousand copies make a thousand pairs, not a million.
--
-- In:   minhash (id, place, value).
-- Out:  id, first_id, bands (in how many they agree).
--
-- size: places in a band. Of b bands of that size, documents whose sets agree in a share s meet with the probability
-- 1 - (1 - s^size)^b: with 64 places and a size of 4, half of the pairs with s = 0.45, and 99 % of those with s = 0.71.
--
-- param: minhash identifier minhash
-- param: size int 4 (1 to 1024)
--
-- Example
--   given minhash (id string, place int, value bigint)
--     a | 0 | 11
--     a | 1 | 12
--     b | 0 | 11
--     b | 1 | 12
--     c | 0 | 11
--     c | 1 | 13
--   given size = 2
--   gives
--     b | a | 1
SELECT b.id, f.first_id, count(*) AS bands
FROM (
  SELECT id, place div :size AS band, concat_ws(' ', sort_array(collect_list(
    concat(lpad(cast(place AS string), 4, '0'), ':', cast(value AS string))
  ))) AS content
  FROM :minhash
  GROUP BY id, place div :size
  HAVING count(*) = :size
) b
JOIN (
  SELECT band, content, min(id) AS first_id
  FROM (
    SELECT id, place div :size AS band, concat_ws(' ', sort_array(collect_list(
      concat(lpad(cast(place AS string), 4, '0'), ':', cast(value AS string))
    ))) AS content
    FROM :minhash
    GROUP BY id, place div :size
    HAVING count(*) = :size
  ) a
  GROUP BY band, content
) f ON b.band = f.band AND b.content = f.content
WHERE b.id <> f.first_id
GROUP BY b.id, f.first_id
