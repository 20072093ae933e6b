//! The side of Socket Mode that Slack has: what is not acknowledged comes again over the next connection.

use std::collections::{BTreeMap, BTreeSet};

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_websockets::{Message, ServerBuilder};

use super::Slack;

#[derive(Default)]
pub(super) struct SocketMode {
    tickets: u64,
    /// Tickets that nobody has used yet.
    open: BTreeSet<u64>,
    /// In their order, with their ids.
    envelopes: Vec<(String, Value)>,
    /// With what is to be shown to whoever typed a command.
    acknowledged: BTreeMap<String, Value>,
    /// Connections are numbered; up to these they were told to go, or were cut.
    connections: u64,
    retired: u64,
    cut: u64,
}

impl SocketMode {
    pub(super) fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.open.insert(self.tickets);
        self.tickets
    }
}

impl Slack {
    /// Sends something over the connection, and gives the envelope's id.
    pub fn sends(&self, kind: &str, payload: &Value) -> String {
        let mut workspace = self.lock();
        let mode = &mut workspace.socket_mode;
        let id = format!("envelope-{}", mode.envelopes.len() + 1);
        // People are shown answers to what they type and click on, and to nothing else.
        let shows = kind != "events_api";
        let envelope =
            json!({"type": kind, "envelope_id": id, "payload": payload, "accepts_response_payload": shows});
        mode.envelopes.push((id.clone(), envelope));
        drop(workspace);
        self.happens();
        id
    }

    /// Tells the connections there are that they will be closed.
    pub fn retires_connections(&self) {
        let mut workspace = self.lock();
        workspace.socket_mode.retired = workspace.socket_mode.connections;
        drop(workspace);
        self.happens();
    }

    /// Cuts the connections there are.
    pub fn cuts_connections(&self) {
        let mut workspace = self.lock();
        workspace.socket_mode.cut = workspace.socket_mode.connections;
        drop(workspace);
        self.happens();
    }

    /// How many connections there have been.
    pub fn connections(&self) -> u64 {
        self.lock().socket_mode.connections
    }

    pub fn is_acknowledged(&self, envelope: &str) -> bool {
        self.lock().socket_mode.acknowledged.contains_key(envelope)
    }

    /// What whoever typed a command is shown for it.
    pub fn is_shown(&self, envelope: &str) -> Option<Value> {
        self.lock().socket_mode.acknowledged.get(envelope).filter(|shown| !shown.is_null()).cloned()
    }

    fn happens(&self) {
        self.happened.send_modify(|count| *count += 1);
    }
}

pub(super) async fn accept(slack: Slack, listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(slack.clone(), stream));
    }
}

/// One connection. It ends when it is cut, or when the other side goes.
async fn serve(slack: Slack, stream: TcpStream) {
    let Ok((request, mut socket)) = ServerBuilder::new().accept(stream).await else { return };
    let ticket = request.uri().query().and_then(|query| query.strip_prefix("ticket=")?.parse().ok());
    let number = {
        let mut workspace = slack.lock();
        let mode = &mut workspace.socket_mode;
        // A ticket is good once.
        if !ticket.is_some_and(|ticket| mode.open.remove(&ticket)) {
            return;
        }
        mode.connections += 1;
        mode.connections
    };
    let hello = json!({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A1"}});
    if socket.send(Message::text(hello.to_string())).await.is_err() {
        return;
    }
    let mut happened = slack.happened.subscribe();
    slack.happens();
    let mut sent = BTreeSet::new();
    let mut told = false;
    loop {
        let next = slack.lock().next_frame(number, &mut sent, &mut told);
        match next {
            Next::End => return,
            Next::Send(frame) => {
                if socket.send(Message::text(frame.to_string())).await.is_err() {
                    return;
                }
            }
            Next::Wait => tokio::select! {
                _ = happened.changed() => {}
                message = socket.next() => match message {
                    Some(Ok(message)) => slack.takes(&message),
                    _ => return,
                },
            },
        }
    }
}

enum Next {
    Send(Value),
    Wait,
    End,
}

impl super::Workspace {
    fn next_frame(&mut self, connection: u64, sent: &mut BTreeSet<String>, told: &mut bool) -> Next {
        let mode = &self.socket_mode;
        if connection <= mode.cut {
            return Next::End;
        }
        if connection <= mode.retired {
            if *told {
                return Next::Wait;
            }
            *told = true;
            return Next::Send(json!({"type": "disconnect", "reason": "refresh_requested"}));
        }
        let waiting = |(id, _): &&(String, Value)| !mode.acknowledged.contains_key(id) && !sent.contains(id);
        match mode.envelopes.iter().find(waiting) {
            Some((id, envelope)) => {
                sent.insert(id.clone());
                Next::Send(envelope.clone())
            }
            None => Next::Wait,
        }
    }
}

impl Slack {
    fn takes(&self, message: &Message) {
        let answer: Value =
            message.as_text().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        if let Some(id) = answer["envelope_id"].as_str() {
            self.lock().socket_mode.acknowledged.insert(id.to_owned(), answer["payload"].clone());
            self.happens();
        }
    }
}
