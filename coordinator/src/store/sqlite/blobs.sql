-- Schema 3: values too long for a document. The chunks of a blob come first, each in a transaction of its own; the
-- batch that names the blob keeps it.

CREATE TABLE blob (
    entity TEXT NOT NULL,
    blob   BLOB NOT NULL,
    at     INTEGER NOT NULL, -- when the last chunk was written, or the blob was kept
    bytes  INTEGER,          -- NULL until it is kept
    PRIMARY KEY (entity, blob)
) WITHOUT ROWID;
CREATE INDEX blob_loose ON blob (at) WHERE bytes IS NULL;

-- The bytes are the last column, so that lengths are found without following the overflow pages.
CREATE TABLE chunk (
    entity TEXT NOT NULL,
    blob   BLOB NOT NULL,
    place  INTEGER NOT NULL,
    bytes  BLOB NOT NULL,
    PRIMARY KEY (entity, blob, place)
);
