-- Schema 2: a commit appends what it changes, and the tables follow many commits at once.

CREATE TABLE journal (
    position  INTEGER PRIMARY KEY,
    entity    TEXT NOT NULL,
    version   INTEGER NOT NULL,
    batch     BLOB NOT NULL,
    at        INTEGER NOT NULL,
    sequence  INTEGER NOT NULL, -- highest outbox sequence of the commit, or zero
    documents TEXT NOT NULL,    -- JSON: what the commit does to documents
    seen      TEXT NOT NULL     -- JSON: the marks that it moves
);
