-- The read side. Disposable: it can be built again from the store at any time.

-- Written once the tables are whole: by whom, and the newest commit that they have.
CREATE TABLE built (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    writer   TEXT NOT NULL,
    key      TEXT NOT NULL,
    version  INTEGER NOT NULL,
    at       INTEGER NOT NULL
);

-- Entities, by the number that stands for them in the other tables, and the version that these have reached.
CREATE TABLE entity (
    number  INTEGER PRIMARY KEY,
    key     TEXT NOT NULL UNIQUE,
    reached INTEGER NOT NULL
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

-- Documents come in this order when the table is filled, so this one is there from the beginning.
CREATE UNIQUE INDEX document_key ON document (entity, document);

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

-- Whose a learning is and who finds it, by the row of its document: a search looks at many, and these rows are short.
CREATE TABLE learning (
    row    INTEGER PRIMARY KEY,
    entity INTEGER NOT NULL,
    scope,
    agent,
    source
);
CREATE INDEX learning_entity ON learning (entity);

-- What learnings mean. Each row has all that a search by meaning asks for, and those of a swarm lie together.
CREATE TABLE vector (
    entity INTEGER NOT NULL,
    memory TEXT NOT NULL,        -- the learning's document
    change INTEGER NOT NULL,     -- rises with each write within an entity, until all is made anew
    model  TEXT NOT NULL,
    scope,
    agent,
    source,
    scale  REAL NOT NULL,
    codes  BLOB,                 -- NULL when it is gone
    PRIMARY KEY (entity, memory)
) WITHOUT ROWID;
CREATE UNIQUE INDEX vector_change ON vector (entity, change);

-- Which of an entity's batches have events about a subject; the events themselves are read from the store.
CREATE TABLE mention (
    entity  INTEGER NOT NULL,
    era     INTEGER NOT NULL,  -- by so many versions of an entity: what lies together here is forgotten together
    subject NOT NULL,          -- the 16 bytes of an id, or text
    version INTEGER NOT NULL,
    PRIMARY KEY (entity, era, subject, version)
) WITHOUT ROWID;

-- The eras that have mentions.
CREATE TABLE era (
    entity INTEGER NOT NULL,
    era    INTEGER NOT NULL,
    at     INTEGER NOT NULL,   -- when the last batch that it mentions was committed
    PRIMARY KEY (entity, era)
) WITHOUT ROWID;
