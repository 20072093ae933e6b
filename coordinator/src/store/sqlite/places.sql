-- Schema 4: where the record of an entity's version is. An index of the records would be written with every commit, in
-- pages of each entity; this follows many commits at once, as documents do.

CREATE TABLE place (
    entity   TEXT NOT NULL,
    version  INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (entity, version)
) WITHOUT ROWID;
INSERT INTO place SELECT entity, version, position FROM record ORDER BY entity, version;

DROP INDEX record_version;
DROP INDEX record_replies;
-- Its newest entries are written together, whatever entities they are of.
CREATE INDEX record_answered ON record (position) WHERE replies IS NOT NULL;
