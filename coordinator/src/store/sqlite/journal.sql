-- Schema 2: a commit appends what it changes, and the tables follow many commits at once. Two tables take turns: one
-- grows while the other is folded and then emptied at a stroke, which costs a fraction of deleting row by row.

CREATE TABLE journal_even (
    position  INTEGER PRIMARY KEY, -- the commit's record
    entity    TEXT NOT NULL,
    version   INTEGER NOT NULL,
    batch     BLOB NOT NULL,
    at        INTEGER NOT NULL,
    sequence  INTEGER NOT NULL, -- highest outbox sequence of the commit, or zero
    documents TEXT NOT NULL,    -- JSON: what the commit does to documents
    seen      TEXT NOT NULL     -- JSON: the marks that it moves
);

CREATE TABLE journal_odd (
    position  INTEGER PRIMARY KEY,
    entity    TEXT NOT NULL,
    version   INTEGER NOT NULL,
    batch     BLOB NOT NULL,
    at        INTEGER NOT NULL,
    sequence  INTEGER NOT NULL,
    documents TEXT NOT NULL,
    seen      TEXT NOT NULL
);
