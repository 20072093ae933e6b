-- The read side. Disposable: it is deleted at start and built again from the store.

CREATE TABLE document (
    row      INTEGER PRIMARY KEY,
    entity   TEXT NOT NULL,
    document TEXT NOT NULL,
    swarm    TEXT NOT NULL,
    kind     TEXT NOT NULL,    -- of the entity
    type     TEXT NOT NULL,    -- the document's key up to its slash
    id       TEXT NOT NULL,    -- and after it
    live     INTEGER NOT NULL,
    version  INTEGER NOT NULL, -- of the batch that last wrote it
    written  INTEGER NOT NULL,
    head     TEXT NOT NULL,
    body     TEXT NOT NULL,
    UNIQUE (entity, document)
);
CREATE INDEX document_listed ON document (swarm, type, kind);
CREATE INDEX document_archived ON document (written) WHERE live = 0;

-- A list of tasks is sorted by priority, then by the last change; these give the order without sorting.
CREATE INDEX task_all ON document (
    swarm, json_extract(body, '$.priority') DESC, json_extract(body, '$.lastUpdatedAt') DESC, id, entity
) WHERE type = 'task';
CREATE INDEX task_status ON document (
    swarm, json_extract(body, '$.status'),
    json_extract(body, '$.priority') DESC, json_extract(body, '$.lastUpdatedAt') DESC, id, entity
) WHERE type = 'task';
CREATE INDEX task_assignee ON document (
    swarm, json_extract(body, '$.agentId'), json_extract(body, '$.status')
) WHERE type = 'task';
CREATE INDEX task_epic ON document (swarm, json_extract(body, '$.epicId')) WHERE type = 'task';
CREATE INDEX task_schedule ON document (swarm, json_extract(body, '$.scheduleId')) WHERE type = 'task';

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

CREATE TABLE event (
    position INTEGER PRIMARY KEY,
    entity   TEXT NOT NULL,
    swarm    TEXT NOT NULL,
    version  INTEGER NOT NULL,
    ordinal  INTEGER NOT NULL, -- its place in the batch
    at       INTEGER NOT NULL,
    subject  TEXT,
    kind     TEXT NOT NULL,
    body     TEXT NOT NULL,
    UNIQUE (entity, version, ordinal)
);
CREATE INDEX event_subject ON event (swarm, subject, position) WHERE subject IS NOT NULL;
CREATE INDEX event_swarm ON event (swarm, position);
