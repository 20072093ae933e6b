-- The read side. Disposable: it is deleted at start and built again from the store.

-- Entities, by the number that stands for them in the other tables.
CREATE TABLE entity (
    number INTEGER PRIMARY KEY,
    key    TEXT NOT NULL UNIQUE
);

-- What one list is of: a swarm's documents of a type, from entities of a kind.
CREATE TABLE collection (
    number INTEGER PRIMARY KEY,
    swarm  TEXT NOT NULL,
    kind   TEXT NOT NULL,    -- of the entity
    type   TEXT NOT NULL,    -- the document's key up to its slash
    UNIQUE (swarm, type, kind)
);

-- The columns without a type are fields of the body that lists are filtered and sorted by.
CREATE TABLE document (
    row        INTEGER PRIMARY KEY,
    entity     INTEGER NOT NULL,
    collection INTEGER NOT NULL,
    document   TEXT NOT NULL,
    live       INTEGER NOT NULL,
    version    INTEGER NOT NULL, -- of the batch that last wrote it
    written    INTEGER NOT NULL,
    status,
    priority,
    updated,
    agent,
    epic,
    schedule,
    body       TEXT NOT NULL
);

CREATE TABLE tag (
    tag TEXT NOT NULL,
    row INTEGER NOT NULL,
    PRIMARY KEY (tag, row)
) WITHOUT ROWID;
CREATE INDEX tag_row ON tag (row);

-- Contentless: the texts stand in the bodies already. Its rowid is the document's row.
CREATE VIRTUAL TABLE text USING fts5 (
    title, content,
    content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);

-- Which of an entity's batches have events about a subject; the events themselves are read from the store.
CREATE TABLE mention (
    entity  INTEGER NOT NULL,
    subject NOT NULL,          -- the 16 bytes of an id, or text
    version INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (entity, subject, version)
) WITHOUT ROWID;
