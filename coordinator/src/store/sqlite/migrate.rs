//! Brings a store's file to the schema of this build, or says why it cannot be used.

use rusqlite::{Connection, TransactionBehavior};

/// `SKEN` in ASCII, in the header of every store file: other programs' files are left alone.
const APPLICATION: i32 = 0x534B_454E;

/// `SKEI`, in its place while an import fills the file.
const IMPORTING: i32 = 0x534B_4549;

/// Step n brings a file of schema n to schema n + 1. Steps are never changed, only added.
const STEPS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("journal.sql"),
    include_str!("blobs.sql"),
    include_str!("places.sql"),
];

/// Why a file cannot be used as the store.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error(
        "the file belongs to another program (application id {0:#010x}); name another file for the store"
    )]
    Foreign(i32),
    #[error(
        "an import into this file broke off, so it holds a part of a store; remove it, with the files beside it that are \
         called the same with -wal and -shm, and import again"
    )]
    Importing,
    #[error("the file has tables but is no store of Skein; name another file for the store")]
    NotEmpty,
    #[error(
        "the file has schema {found}, this build knows {known}; start the newer build, or restore a backup made with this one"
    )]
    Newer { found: usize, known: usize },
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// Applies the missing steps in one transaction: a crash in between leaves the old schema.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Unusable> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = schema(&transaction)?;
    for step in &STEPS[found..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", STEPS.len() as i64)?;
    transaction.commit()?;
    Ok(())
}

/// Lets nobody open the file from now on while an import is under way.
pub(super) fn mark_import(connection: &Connection, under_way: bool) -> rusqlite::Result<()> {
    let application = if under_way { IMPORTING } else { APPLICATION };
    connection.pragma_update(None, "application_id", application)
}

/// The file's schema; zero for a new file. Reads alone, so that a foreign file stays untouched.
pub(super) fn schema(connection: &Connection) -> Result<usize, Unusable> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application == 0 && version == 0 {
        return if tables == 0 { Ok(0) } else { Err(Unusable::NotEmpty) };
    }
    if application == IMPORTING {
        return Err(Unusable::Importing);
    }
    if application != APPLICATION {
        return Err(Unusable::Foreign(application));
    }
    let found = usize::try_from(version).unwrap_or(usize::MAX);
    if found > STEPS.len() {
        return Err(Unusable::Newer { found, known: STEPS.len() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrating_twice_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        migrate(&mut connection).unwrap();
        assert_eq!(schema(&connection).unwrap(), STEPS.len());
    }

    /// What an older build wrote is found by version as before.
    #[test]
    fn records_of_an_older_schema_have_their_places() {
        let mut connection = Connection::open_in_memory().unwrap();
        for step in &STEPS[..3] {
            connection.execute_batch(step).unwrap();
        }
        connection.pragma_update(None, "application_id", APPLICATION).unwrap();
        connection.pragma_update(None, "user_version", 3).unwrap();
        connection
            .execute_batch(
                "INSERT INTO record VALUES (7, 'b', 1, 10, '[]', '[]'), (8, 'a', 1, 11, '[]', NULL),
                     (9, 'b', 2, 12, '[]', NULL)",
            )
            .unwrap();
        migrate(&mut connection).unwrap();
        let mut statement =
            connection.prepare("SELECT entity, version, position FROM place ORDER BY 1, 2").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        let places: Vec<(String, i64, i64)> = rows.map(Result::unwrap).collect();
        assert_eq!(places, [("a".to_owned(), 1, 8), ("b".to_owned(), 1, 7), ("b".to_owned(), 2, 9)]);
    }

    #[test]
    fn foreign_newer_and_other_files_are_refused() {
        let foreign = Connection::open_in_memory().unwrap();
        foreign.pragma_update(None, "application_id", 7).unwrap();
        assert!(matches!(schema(&foreign), Err(Unusable::Foreign(7))));

        let tables = Connection::open_in_memory().unwrap();
        tables.execute_batch("CREATE TABLE something (x)").unwrap();
        assert!(matches!(schema(&tables), Err(Unusable::NotEmpty)));

        let mut newer = Connection::open_in_memory().unwrap();
        migrate(&mut newer).unwrap();
        newer.pragma_update(None, "user_version", 999).unwrap();
        assert!(matches!(migrate(&mut newer), Err(Unusable::Newer { found: 999, .. })));
    }
}
