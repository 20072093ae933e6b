//! `skein tasks list` and its like.

use std::marker::PhantomData;

use clap::{Args, Subcommand};
use skein_proto::v1::ListRequest;

use super::table::{self, Column};
use super::{CliError, Common, InSwarm};
use crate::api::client::{self, Listed};

/// What a list shows.
pub(super) trait View: Clone + Send + Sync + std::fmt::Debug + 'static {
    const NAME: &'static str;
    const COLUMNS: &'static [Column];
}

macro_rules! views {
    ($($view:ident = $name:literal { $($heading:literal: $($place:literal)|+),* })*) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $view;

        impl View for $view {
            const NAME: &'static str = $name;
            const COLUMNS: &'static [Column] = &[$(($heading, &[$($place),+])),*];
        }
    )*};
}

views! {
    Agents = "agents" { "ID": "id", "NAME": "name", "LEAD": "isLead", "STATUS": "status", "CAPACITY": "maxTasks" }
    Tasks = "tasks" { "ID": "id", "STATUS": "status", "PRIORITY": "priority", "AGENT": "agentId", "TASK": "task" }
    Locks = "locks" { "KEY": "resourceKey", "HOLDER": "holder", "HOLDER IS": "holderState", "AGE": "age", "TOKEN": "token", "UNTIL": "expiresAt" }
    Calls = "calls" { "ID": "callId", "STATUS": "status", "CALLER": "callerInstanceId", "TARGET": "targetAgent", "INSTANCE": "targetInstanceId" }
    Waits = "waits" { "ID": "waitId", "INSTANCE": "instance", "STATE": "state", "FILTER": "filter", "UNTIL": "deadline" }
    Instances = "instances" { "ID": "instance", "AGENT": "agent", "STATE": "state", "RUNNER": "runner", "SINCE": "createdAt" }
}

#[derive(Debug, Args)]
pub(super) struct Of<V: View> {
    #[command(subcommand)]
    command: Command,
    #[arg(skip)]
    view: PhantomData<V>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List them.
    List(List),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    at: InSwarm,
    /// Most rows.
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

impl<V: View> Of<V> {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let Command::List(List { at, limit }) = self.command;
        rows(&at, V::NAME, "", V::COLUMNS, limit).await
    }
}

/// Most rows, where all are shown.
pub(super) const ALL: u32 = u32::MAX;

/// Asks for a view, of one agent if one is named, and prints it.
pub(super) async fn rows(
    at: &InSwarm,
    view: &str,
    agent: &str,
    columns: &[Column],
    limit: u32,
) -> Result<(), CliError> {
    print(ask(at, view, agent, limit).await?, columns, limit, at.common.json)
}

/// Asks for a view, of one agent if one is named.
pub(super) async fn ask(at: &InSwarm, view: &str, agent: &str, limit: u32) -> Result<Listed, CliError> {
    let mut admin = at.common.admin().await?;
    let request = ListRequest {
        view: view.to_owned(),
        swarm: at.swarm.to_string(),
        // One more tells whether there are more.
        limit: limit.saturating_add(1),
        after: String::new(),
        agent: agent.to_owned(),
    };
    Ok(client::rows(&mut admin, request).await?)
}

/// Asks for a view of what stands beside the swarms.
pub(super) async fn beside(common: &Common, view: &str, limit: u32) -> Result<Listed, CliError> {
    let mut admin = common.admin().await?;
    // One more tells whether there are more.
    Ok(client::list(&mut admin, view, "", limit.saturating_add(1)).await?)
}

/// Prints what was asked for with the same limit.
pub(super) fn print(mut listed: Listed, columns: &[Column], limit: u32, json: bool) -> Result<(), CliError> {
    let shown = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = listed.rows.len() > shown;
    listed.rows.truncate(shown);
    if listed.rebuilding {
        table::note("skein: the lists are still being built after a start; some rows may be missing");
    }
    table::print(&listed.rows, columns, json)?;
    if more {
        table::note(format_args!(
            "skein: there are more than these {shown}; --limit shows as many as you want"
        ));
    }
    Ok(())
}
