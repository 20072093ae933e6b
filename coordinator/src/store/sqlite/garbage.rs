//! Documents that hold what no Skein has written, in a file that is sound as such.

use rusqlite::{Error, Row};

/// Such a document.
#[derive(Debug)]
pub(super) struct Garbage {
    /// The names of the entity and of the document.
    pub subject: String,
    /// What is wrong and what to do.
    pub problem: String,
}

impl Garbage {
    /// # Errors
    /// The error itself, when it says nothing of the content: the file is damaged, or the disk fails.
    pub(super) fn of(key: &str, document: &str, error: Error) -> rusqlite::Result<Self> {
        let why = match error {
            Error::FromSqlConversionFailure(_, _, why) => why.to_string(),
            Error::InvalidColumnType(..) | Error::IntegralValueOutOfRange(..) | Error::Utf8Error(..) => {
                error.to_string()
            }
            other => return Err(other),
        };
        let problem = format!(
            "the document `{document}` of {key} cannot be read: {why}; only what needs it stands still; stop the node \
             and restore a backup"
        );
        Ok(Self { subject: format!("{key} {document}"), problem })
    }

    /// The same of a row that begins with both names.
    pub(super) fn in_row(row: &Row<'_>, error: Error) -> rusqlite::Result<Self> {
        let name = |column| row.get_ref(column).ok()?.as_str().ok();
        Self::of(name(0).unwrap_or("?"), name(1).unwrap_or("?"), error)
    }
}
