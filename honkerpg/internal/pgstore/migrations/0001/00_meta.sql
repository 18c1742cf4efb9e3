-- Version 1 of the schema. Times are timestamptz of the server's clock, with microseconds. Names sort by their bytes,
-- whatever the collation of the database. The text is run with the schema of the options in place of honker.

CREATE TABLE honker.meta (key text COLLATE "C" PRIMARY KEY, value text NOT NULL);

-- The functions may name tables of the files after theirs.
SET LOCAL check_function_bodies = off;
