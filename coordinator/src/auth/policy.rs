//! The table of rights: which role may use which part of the swarm.
//!
//! Ownership (is this task yours, is this your lock) is the entities' matter: they decide it from the state.
//! Here stands only what a role may ever do, whoever owns the thing.

use skein_shared::{Code, Refusal};

use super::principal::{Principal, Role};

/// What a use case asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Look at the swarm.
    Read,
    /// Do work: join, take tasks, report, talk, hold locks, call, wait.
    Work,
    /// Hand out work, steer epics, speak for the swarm.
    Lead,
    /// Change how things run: definitions, kills, forced releases, tokens.
    Administer,
    /// Open a runner's control session.
    Run,
}

impl Right {
    /// The scope that a token of sufficient role stands for, as the protected-resource metadata names it.
    pub fn scope(self) -> &'static str {
        match self {
            Right::Read => "swarm:read",
            Right::Work => "swarm:work",
            Right::Lead => "swarm:lead",
            Right::Administer => "swarm:admin",
            Right::Run => "swarm:run",
        }
    }

    pub const ALL: [Right; 5] = [Right::Read, Right::Work, Right::Lead, Right::Administer, Right::Run];
}

/// Whether the role has the right, whatever a caller's token was left with. An operator may lead, so that a person can
/// step in for a lost lead, but takes no work: work belongs to an instance that something watches.
pub fn allows(role: Role, right: Right) -> bool {
    match role {
        Role::Lead => matches!(right, Right::Read | Right::Work | Right::Lead),
        Role::Worker => matches!(right, Right::Read | Right::Work),
        Role::Observer => right == Right::Read,
        Role::Operator => matches!(right, Right::Read | Right::Lead | Right::Administer),
        Role::Runner => right == Right::Run,
    }
}

/// Whether the caller may: by its role, and by what its token was left with.
pub fn may(principal: &Principal, right: Right) -> bool {
    allows(principal.role, right) && principal.rights.has(right)
}

/// Whether the caller is the agent at its work, and no onlooker that has a token of the agent. An onlooker takes
/// nothing that is given once, and is no sign that the agent lives.
pub fn may_work(principal: &Principal) -> bool {
    may(principal, Right::Work) && require_writable(principal).is_ok()
}

/// Lets the caller pass, or says which role it takes.
///
/// # Errors
/// `forbidden`, with the scope that is missing.
pub fn require(principal: &Principal, right: Right) -> Result<(), Refusal> {
    if may(principal, right) {
        return Ok(());
    }
    if allows(principal.role, right) {
        let (lacks, has) = (right.scope(), principal.rights);
        let problem = format!("this takes the scope {lacks}, and this token has {has}; ask for one with it");
        return Err(Refusal::new(Code::Forbidden, problem).with(serde_json::json!({ "scope": lacks })));
    }
    let able: Vec<&str> = Role::ALL.into_iter().filter(|r| allows(*r, right)).map(Role::as_str).collect();
    Err(Refusal::new(
        Code::Forbidden,
        format!("the role {} may not do this; it takes the role {}", principal.role, able.join(" or ")),
    )
    .with(serde_json::json!({ "scope": right.scope(), "role": principal.role })))
}

/// Lets pass who may arrange work: hand it out, plan it, set what it needs, and talk of it. Agents that work may, and
/// an operator that may lead, in the place of a person.
///
/// # Errors
/// Those of [`require`].
pub fn require_arranging(principal: &Principal) -> Result<(), Refusal> {
    require(principal, if principal.role == Role::Operator { Right::Lead } else { Right::Work })
}

/// Refuses a principal whose token may only look.
///
/// # Errors
/// `forbidden` when the token is bound to a read-only view.
pub fn require_writable(principal: &Principal) -> Result<(), Refusal> {
    if principal.view.as_ref().is_some_and(|view| view.readonly) {
        return Err(Refusal::new(
            Code::Forbidden,
            "this token may only read; ask for one without the readonly view",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_the_guide_says() {
        let granted: Vec<String> = Role::ALL
            .into_iter()
            .map(|role| {
                let rights = Right::ALL.map(|right| if allows(role, right) { '+' } else { '.' });
                format!("{role} {}", rights.iter().collect::<String>())
            })
            .collect();
        assert_eq!(
            granted,
            ["lead +++..", "worker ++...", "observer +....", "operator +.++.", "runner ....+"]
        );
    }
}
