//! Ways to break the code on purpose, so that tests show that their checkers notice.
//!
//! They are compiled in by the feature `mutations` alone, which the tests turn on and nothing that is shipped does; and
//! even then none is on unless the process says so at its start.

/// One line of the code that does not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Whoever claims a task gets it, though another has it.
    ClaimTaken,
    /// A result is taken from whoever sends it.
    ResultFromAnyone,
    /// Whoever asks for a lock gets it, though another has it.
    LockHeld,
    /// The token of a new grant is that of the last.
    TokenStays,
    /// An occurrence that has fired is due again.
    FireAgain,
    /// What was read stays unread.
    ReadAgain,
    /// An event starts a run of an agent also where one that waits for it gets it.
    StartBeside,
    /// A call ends twice.
    EndCallTwice,
    /// A repeated request is a new one.
    ForgetReplies,
    /// Each delivery goes twice. By itself that does no harm.
    DeliverTwice,
    /// What was taken in before is taken in again.
    IgnoreMarks,
    /// What was delivered stays in the outbox. By itself that does no harm.
    KeepOutbox,
    /// What was taken in is not written down.
    DropMarks,
    /// The monotonic clock ends no lease, nor does another owner.
    EternalLease,
    /// A commit asks neither for the lease nor for the version.
    UncheckedCommit,
}

impl Mutation {
    pub const ALL: [Self; 15] = [
        Self::ClaimTaken,
        Self::ResultFromAnyone,
        Self::LockHeld,
        Self::TokenStays,
        Self::FireAgain,
        Self::ReadAgain,
        Self::StartBeside,
        Self::EndCallTwice,
        Self::ForgetReplies,
        Self::DeliverTwice,
        Self::IgnoreMarks,
        Self::KeepOutbox,
        Self::DropMarks,
        Self::EternalLease,
        Self::UncheckedCommit,
    ];

    /// Its name, as the environment variable has it.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

#[cfg(feature = "mutations")]
static ON: std::sync::OnceLock<Vec<Mutation>> = std::sync::OnceLock::new();

/// Turns mutations on, for as long as the process lives. The names are separated by commas.
///
/// # Errors
/// When there is none of that name, or some were turned on before.
#[cfg(feature = "mutations")]
pub fn turn_on(names: &str) -> Result<(), String> {
    let find = |name: &str| {
        let found = Mutation::ALL.into_iter().find(|mutation| mutation.name() == name);
        found.ok_or_else(|| format!("there is no mutation `{name}`"))
    };
    let mutations = names.split(',').filter(|name| !name.is_empty()).map(find).collect::<Result<_, _>>()?;
    ON.set(mutations).map_err(|_| "mutations were turned on before".to_owned())
}

/// Whether the code is broken in this way.
#[cfg(feature = "mutations")]
pub fn is_on(mutation: Mutation) -> bool {
    ON.get().is_some_and(|on| on.contains(&mutation))
}

/// It never is.
#[cfg(not(feature = "mutations"))]
pub const fn is_on(_: Mutation) -> bool {
    false
}
