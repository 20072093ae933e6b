//! Why a runner cannot start or go on.

use std::path::PathBuf;

use skein_shared::{Code, Refusal};

/// Every message says what happened and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{message}")]
    Config { message: String },
    #[error("{}: {problem}", file.display())]
    Definition { file: PathBuf, problem: String },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error(
        "another runner uses the data folder {}; give this one a folder of its own with --data", .0.display()
    )]
    InUse(PathBuf),
    #[error(
        "another runner uses the work folder {}; give this one a folder of its own with --work, or as `work` under `[runner]` if a node has it", .0.display()
    )]
    WorkInUse(PathBuf),
    #[error("the runner's ledger failed: {0}; check that its disk is healthy and not full")]
    Ledger(#[from] rusqlite::Error),
    #[error("the coordinator refused this runner ({code}): {message}")]
    Refused { code: String, message: String },
}

impl Error {
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::Config { message: message.into() }
    }

    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { action, path: path.into(), source }
    }

    /// The code that the command line turns into its exit status.
    pub fn code(&self) -> Code {
        match self {
            Self::Config { .. } | Self::Definition { .. } => Code::InvalidArgument,
            Self::InUse(_) | Self::WorkInUse(_) => Code::WrongState,
            Self::Refused { code, .. } => {
                Code::ALL.iter().copied().find(|known| known.as_str() == code).unwrap_or(Code::Forbidden)
            }
            Self::Io { .. } | Self::Ledger(_) => Code::Internal,
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Config { message: refusal.message }
    }
}
