-- Nothing to do: a sequence of PostgreSQL costs a commit nothing.
SELECT 1;
