-- Stacking without a second model: the mean of the models' probabilities, class by class.
--
-- In:   scores (SCORES of all models in one table: id, probabilities; all with the classes in one order).
-- Out:  id, class (from 0, in that order), probability, models (how many gave one).
--
-- param: scores identifier scores
--
-- Example
--   given scores (id string, label string, score double, probabilities array<double>)
--     a | ham | 0.75 | [0.75, 0.25]
--     a | spam | 0.75 | [0.25, 0.75]
--     b | ham | 1.0 | [1.0, 0.0]
--   gives
--     a | 0 | 0.5 | 2
--     a | 1 | 0.5 | 2
--     b | 0 | 1.0 | 1
--     b | 1 | 0.0 | 1
SELECT s.id, p.class, avg(p.probability) AS probability, count(*) AS models
FROM :scores s
LATERAL VIEW posexplode(s.probabilities) p AS class, probability
GROUP BY s.id, p.class
