-- Those indexes of the documents that a build makes last: it fills the table first, and sorts each in one go.
CREATE INDEX document_archived ON document (written) WHERE live = 0;

-- A list of tasks is sorted by priority, then by the last change; these give the order without sorting.
CREATE INDEX document_all ON document (collection, priority DESC, updated DESC);
CREATE INDEX document_status ON document (collection, status, priority DESC, updated DESC)
    WHERE status IS NOT NULL;
CREATE INDEX document_agent ON document (collection, agent, status) WHERE agent IS NOT NULL;
CREATE INDEX document_epic ON document (collection, epic) WHERE epic IS NOT NULL;
CREATE INDEX document_schedule ON document (collection, schedule) WHERE schedule IS NOT NULL;
