//! The start of an instance: what has to be there before its first process begins, and what is undone if none does.

use std::fmt::Display;
use std::sync::Arc;

use super::ledger::{Row, State, What};
use super::machine::Machine;
use super::shared::LeftBehind;
use super::stage::Stage;
use super::{Mailbox, Shared, input, joined, kept, spec};
use crate::container::{Failure, Handle, Spec};
use crate::definition::Definition;
use crate::endpoint::Endpoint;

/// What a start has come to.
pub(super) struct Begun {
    pub handle: Handle,
    pub endpoint: Endpoint,
    /// By which it was started. What is changed of it counts for the next run. None of one that an earlier process of
    /// the runner has started, while this one has no definition.
    pub definition: Option<Arc<Definition>>,
}

/// Starts an instance, lives with it to its end and gives that, as [`Machine::run`] does.
pub(super) async fn start(
    shared: Arc<Shared>,
    mut row: Row,
    input: String,
    mut mailbox: Mailbox,
) -> Option<Row> {
    row.input = input;
    match begin(&shared, &mut row, &mut mailbox).await.ok()? {
        Ok(begun) => {
            let pid = begun.handle.pid;
            row.state = State::Running;
            tracing::info!(instance = row.instance, pid, "started");
            shared.save(&row, Some(What::Started { pid })).await;
            Machine::new(shared, row, begun, mailbox).run().await
        }
        Err(Failure(reason)) => {
            tracing::warn!(instance = row.instance, reason, "not started");
            shared.clear(&row.instance).await;
            (row.state, row.reason) = (State::Ended, reason);
            Some(row)
        }
    }
}

/// Starts the first process, once the runner has its lease: a start may have lain about for longer than that lasted,
/// and what it starts may run elsewhere by now. It is given up when it is not wanted any more: an image may take hours.
async fn begin(
    shared: &Shared,
    row: &mut Row,
    mailbox: &mut Mailbox,
) -> Result<Result<Begun, Failure>, LeftBehind> {
    let (mut silent, began, latest) = (shared.silent.subscribe(), row.began, row.token);
    let launched = async {
        // Its sender lives in `shared`.
        let _ = silent.wait_for(|silent| !silent).await;
        launch(shared, row).await
    };
    let (token, reason) = tokio::select! {
        biased;
        launched = launched => return Ok(launched),
        given_up = mailbox.given_up(began, latest) => given_up,
    };
    row.token = token;
    // It may have got as far as to leave something behind.
    shared.sweep(&row.instance).await?;
    Ok(Err(Failure(reason)))
}

async fn launch(shared: &Shared, row: &mut Row) -> Result<Begun, Failure> {
    let definition = shared.definition(row)?;
    row.stage = Stage::first(&definition.hooks);
    (row.harness, row.patience) = (definition.program.harness(), definition.program.patience());
    open_and_launch(shared, row, definition).await
}

/// Opens the instance's endpoint and starts the process whose turn it is.
pub(super) async fn open_and_launch(
    shared: &Shared,
    row: &mut Row,
    definition: Arc<Definition>,
) -> Result<Begun, Failure> {
    row.egress = definition.container.as_ref().map(|container| container.egress.clone()).unwrap_or_default();
    row.address = shared.engine.door(definition.container.as_ref()).await?;
    let endpoint = Endpoint::open(row, shared.upstreams.clone()).await.map_err(|error| {
        let address = row.address;
        Failure(format!("its endpoint could not be opened at {address}: {error}; this has to be an address of the runner's machine"))
    })?;
    row.port = endpoint.port();
    let handle = launch_stage(shared, row, &definition).await?;
    Ok(Begun { handle, endpoint, definition: Some(definition) })
}

/// Starts the process whose turn it is.
pub(super) async fn launch_stage(
    shared: &Shared,
    row: &mut Row,
    definition: &Definition,
) -> Result<Handle, Failure> {
    // An earlier start of the same instance has left a log, and perhaps a conversation to go on with.
    let session = match (row.stage, &row.session) {
        // It went with the container that it was held in.
        _ if definition.container.is_some() && !kept::are_there(shared, &row.instance) => None,
        (Stage::Agent, None) => shared.said(row).await.session,
        (_, known) => known.clone(),
    };
    // A credential may be another since it was lent to an earlier process, which has printed the former one.
    shared.hide_lent(&row.instance, row.harness).await;
    spec::lend(shared, row, definition)?;
    let mut spec = spec::of(shared, row, definition, session.as_deref())?;
    input::give(shared, row, definition, &mut spec)?;
    kept::give(shared, row, definition, &mut spec)?;
    joined::give(shared, row, definition, &mut spec)?;
    // What a spilled one was woken by stays written down until it runs.
    if row.stage == Stage::Agent && row.state != State::Spilled {
        row.input.clear();
    }
    row.handle = None;
    match row.state {
        State::Accepted | State::Spilled => write_down_start(shared, row, &spec).await?,
        _ => shared.save(row, None).await,
    }
    let handle = shared.engine.start(&spec).await?;
    row.handle = Some(handle.clone());
    Ok(handle)
}

/// Of a run, or after a long sleep. What nothing is known of is commanded again, so nothing may begin before this.
async fn write_down_start(shared: &Shared, row: &mut Row, spec: &Spec) -> Result<(), Failure> {
    if row.state == State::Accepted {
        row.state = State::Starting;
    }
    let unwritten =
        |error: &dyn Display| Failure(format!("that it starts could not be written down: {error}"));
    tokio::fs::write(&spec.unbegun, "").await.map_err(|error| unwritten(&error))?;
    shared.ledger.save(row.clone(), None).await.map_err(|error| unwritten(&error))
}
