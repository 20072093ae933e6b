-- The store of record, schema 1. Times are milliseconds since the Unix epoch.

-- Who may write: one row, compared in every transaction.
CREATE TABLE fence (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    epoch    INTEGER NOT NULL,
    nonce    INTEGER NOT NULL
);

CREATE TABLE entity (
    key      TEXT PRIMARY KEY,
    version  INTEGER NOT NULL,
    batch    BLOB NOT NULL,    -- id of the last batch: the same one again is a repeat
    at       INTEGER NOT NULL,
    sequence INTEGER NOT NULL  -- last outbox sequence given out
) WITHOUT ROWID;

-- The body is the last column, so that reading heads does not follow its overflow pages.
CREATE TABLE document (
    entity   TEXT NOT NULL,
    document TEXT NOT NULL,
    live     INTEGER NOT NULL,
    version  INTEGER NOT NULL, -- of the batch that last wrote it
    written  INTEGER NOT NULL,
    head     TEXT NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (entity, document)
) WITHOUT ROWID;
CREATE INDEX document_live ON document (entity, document) WHERE live = 1;
CREATE INDEX document_archived ON document (written) WHERE live = 0;

-- One row per batch. Its newest row is never deleted, so that positions are never given out twice.
CREATE TABLE record (
    position INTEGER PRIMARY KEY,
    entity   TEXT NOT NULL,
    version  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    events   TEXT,             -- NULL: none, or trimmed
    replies  TEXT              -- NULL: none, or trimmed
);
CREATE UNIQUE INDEX record_version ON record (entity, version);
CREATE INDEX record_replies ON record (entity, at) WHERE replies IS NOT NULL;
CREATE INDEX record_empty ON record (position) WHERE events IS NULL AND replies IS NULL;

-- How far the deliveries of each source were taken in. A row each, because an entity with many sources
-- would otherwise write all of its marks at every delivery.
CREATE TABLE mark (
    entity   TEXT NOT NULL,
    source   TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (entity, source)
) WITHOUT ROWID;

CREATE TABLE timer (
    entity TEXT PRIMARY KEY,
    due    INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX timer_due ON timer (due, entity);

-- A position is the record's position and the effect's place in the batch: it rises without a counter.
CREATE TABLE outbox (
    position INTEGER PRIMARY KEY,
    source   TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    effect   TEXT NOT NULL
);

CREATE TABLE dead_letter (
    position  INTEGER PRIMARY KEY,
    source    TEXT NOT NULL,
    epoch     INTEGER NOT NULL,
    sequence  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    effect    TEXT NOT NULL,
    reason    TEXT NOT NULL,
    buried_at INTEGER NOT NULL
);
