//! Follows the agents folder: what is changed there holds for the next run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use skein_shared::id::Name;
use tokio::sync::{mpsc, watch};

use super::{Definition, Definitions, Folder, load};

/// How long nothing may change before the folder is read: an editor writes a file in several steps.
const QUIET: Duration = Duration::from_millis(300);

/// Notices changes from its beginning on, so that none falls between it and the first reading.
pub struct Watch {
    agents: PathBuf,
    allowed: Vec<Name>,
    changes: mpsc::Receiver<()>,
    /// It watches for as long as it lives. None where the system cannot watch.
    _watcher: Option<RecommendedWatcher>,
}

impl Watch {
    /// Watches a folder of agents, of which `allowed` are the swarms as for [`load`].
    pub fn begin(agents: &Path, allowed: &[Name]) -> Self {
        let (changed, changes) = mpsc::channel(1);
        let noted = move |event: notify::Result<notify::Event>| {
            // Reading a file is an event too. Of many changes at a time one is enough.
            if !matches!(&event, Ok(event) if matches!(event.kind, EventKind::Access(_))) {
                let _ = changed.try_send(());
            }
        };
        let watcher = notify::recommended_watcher(noted).and_then(|mut watcher| {
            watcher.watch(agents, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        if let Err(error) = &watcher {
            tracing::error!(%error, "the agents folder cannot be watched: a change counts after the next start");
        }
        Self { agents: agents.to_owned(), allowed: allowed.to_vec(), changes, _watcher: watcher.ok() }
    }

    /// Reads the agents anew whenever something in their folder has changed. Those that `check` refuses cannot run here.
    pub async fn follow(
        mut self,
        definitions: watch::Sender<Definitions>,
        check: impl Fn(&Definition) -> Result<(), String>,
    ) {
        while self.changes.recv().await.is_some() {
            while let Ok(Some(())) = tokio::time::timeout(QUIET, self.changes.recv()).await {}
            let (folder, allowed) = (self.agents.clone(), self.allowed.clone());
            match tokio::task::spawn_blocking(move || load(&folder, &allowed)).await {
                Ok(Ok(mut folder)) => {
                    folder.refuse(&check);
                    take(&definitions, folder);
                }
                Ok(Err(error)) => tracing::error!(%error, "the agents stay as they were"),
                Err(_) => return,
            }
        }
    }
}

fn take(definitions: &watch::Sender<Definitions>, folder: Folder) {
    for (_, problem) in &folder.wrong {
        tracing::error!("the agent stays as it was: {problem}");
    }
    definitions.send_if_modified(|known| {
        let next = merged(known, folder);
        let differs = next != *known;
        if differs {
            tracing::info!(agents = next.len(), "the agents have changed");
            *known = next;
        }
        differs
    });
}

/// The agents of the folder, and those of which the definition was good before it got a mistake: a slip of the pen ends
/// no runs.
fn merged(known: &Definitions, folder: Folder) -> Definitions {
    let spoilt = |name: &str| folder.wrong.iter().any(|(wrong, _)| wrong == name);
    let kept = known.iter().filter(|((_, name), _)| spoilt(name));
    let mut next: Definitions = kept.map(|(key, definition)| (key.clone(), Arc::clone(definition))).collect();
    next.extend(folder.definitions);
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(agents: &Path, name: &str, text: &str) {
        let folder = agents.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("agent.toml"), text).unwrap();
    }

    /// Waits until these are the agents, each with the number of its instances.
    async fn becomes(seen: &mut watch::Receiver<Definitions>, wanted: &[(&str, u32)]) {
        let same = |known: &Definitions| {
            let found = known.values().map(|agent| (agent.public.name.as_str(), agent.public.instances));
            found.eq(wanted.iter().copied())
        };
        let changed = tokio::time::timeout(Duration::from_secs(20), seen.wait_for(same)).await;
        drop(changed.expect("a change").unwrap());
    }

    #[tokio::test]
    async fn agents_come_change_and_go_and_a_mistake_changes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let agents = root.path();
        let watch = Watch::begin(agents, &[]);
        write(agents, "one", "command = [\"sh\"]");
        let definitions = watch::Sender::new(Definitions::new());
        let mut seen = definitions.subscribe();
        let following = tokio::spawn(watch.follow(definitions, |_| Ok(())));
        becomes(&mut seen, &[("one", 1)]).await;
        write(agents, "two", "command = [\"sh\"]\ninstances = 2");
        becomes(&mut seen, &[("one", 1), ("two", 2)]).await;
        write(agents, "two", "comand = [\"sh\"]");
        write(agents, "one", "command = [\"sh\"]\ninstances = 7");
        becomes(&mut seen, &[("one", 7), ("two", 2)]).await;
        std::fs::remove_dir_all(agents.join("one")).unwrap();
        becomes(&mut seen, &[("two", 2)]).await;
        following.abort();
    }
}
