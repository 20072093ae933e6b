//! Where the coordinators' MCP faces are, as their welcomes said.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// Shared by all endpoints; the control streams keep it up to date.
#[derive(Clone, Default)]
pub struct Upstreams {
    known: watch::Sender<BTreeMap<usize, Upstream>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Upstream {
    url: String,
    connected: bool,
}

impl Upstreams {
    /// Coordinator number `index` serves MCP at `url`, which ends in `/mcp`; what else it serves is beside that.
    pub fn connected(&self, index: usize, url: &str) {
        let url = url.trim_end_matches('/').trim_end_matches("/mcp");
        let upstream = Upstream { url: url.to_owned(), connected: true };
        self.known.send_modify(|known| _ = known.insert(index, upstream));
    }

    /// Its control stream broke. It is asked last from now on: it may still answer.
    pub fn disconnected(&self, index: usize) {
        self.known.send_modify(|known| {
            if let Some(upstream) = known.get_mut(&index) {
                upstream.connected = false;
            }
        });
    }

    /// It is gone for good.
    pub fn forget(&self, index: usize) {
        self.known.send_modify(|known| _ = known.remove(&index));
    }

    /// The URL for the given try: connected coordinators in turn, then the others.
    pub(super) fn pick(&self, attempt: usize) -> Option<String> {
        let known = self.known.borrow();
        let mut urls: Vec<(bool, &String)> = known.values().map(|at| (!at.connected, &at.url)).collect();
        urls.sort_by_key(|(away, _)| *away);
        let turn = attempt.checked_rem(urls.len())?;
        urls.get(turn).map(|(_, url)| (*url).clone())
    }
}
