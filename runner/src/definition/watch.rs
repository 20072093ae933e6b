//! Follows the agents folder: what is changed there holds for the next run.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use skein_shared::id::Name;
use tokio::sync::{mpsc, watch};

use super::{Definition, Definitions, Folder, load};

/// How long nothing may change before the folder is read: an editor writes a file in several steps.
const QUIET: Duration = Duration::from_millis(300);

/// How often it is looked whether the folder is still the one that is watched.
const LOOK: Duration = Duration::from_secs(3);

/// Notices changes from its beginning on, so that none falls between it and the first reading.
pub struct Watch {
    agents: PathBuf,
    allowed: Vec<Name>,
    changed: mpsc::Sender<()>,
    changes: mpsc::Receiver<()>,
    /// None where the system cannot watch.
    watched: Option<Watched>,
}

/// A folder, as long as this lives.
struct Watched {
    folder: Identity,
    _watcher: RecommendedWatcher,
}

/// What tells a folder from any other that takes its place. Numbers are used again, and times of birth are not on every
/// file system.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
    born: Option<SystemTime>,
}

impl Identity {
    fn of(folder: &Path) -> io::Result<Self> {
        let about = std::fs::metadata(folder)?;
        Ok(Self { device: about.dev(), number: about.ino(), born: about.created().ok() })
    }
}

impl Watch {
    /// Watches a folder of agents, of which `allowed` are the swarms as for [`load`].
    pub fn begin(agents: &Path, allowed: &[Name]) -> Self {
        let (changed, changes) = mpsc::channel(1);
        let watched = watch(agents, changed.clone());
        if let Err(error) = &watched {
            tracing::error!(%error, "the agents folder cannot be watched; it is read every few seconds");
        }
        Self { agents: agents.to_owned(), allowed: allowed.to_vec(), changed, changes, watched: watched.ok() }
    }

    /// Has the agents read anew though nothing in their folder has changed: more of them may be able to run here.
    pub fn again(&self) -> impl Fn() + Send + use<> {
        let changed = self.changed.clone();
        move || {
            // One that waits already is enough.
            let _ = changed.try_send(());
        }
    }

    /// Reads the agents anew whenever something in their folder has changed, or another has taken its place. Those that
    /// `check` refuses cannot run here.
    pub async fn follow(
        mut self,
        definitions: watch::Sender<Definitions>,
        check: impl Fn(&Definition) -> Result<(), String>,
    ) {
        let mut looks = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = self.changes.recv() => {
                    while let Ok(Some(())) = tokio::time::timeout(QUIET, self.changes.recv()).await {}
                }
                _ = looks.tick() => {
                    // One that is gone is waited for.
                    let Ok(folder) = Identity::of(&self.agents) else { continue };
                    if self.watched.as_ref().is_some_and(|watched| watched.folder == folder) {
                        continue;
                    }
                    self.watched = watch(&self.agents, self.changed.clone()).ok();
                }
            }
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

fn watch(agents: &Path, changed: mpsc::Sender<()>) -> notify::Result<Watched> {
    // Before it is watched: what takes its place meanwhile is seen by the next look.
    let folder = Identity::of(agents).map_err(notify::Error::io)?;
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading a file is an event too. Of many changes at a time one is enough.
        if !matches!(&event, Ok(event) if matches!(event.kind, EventKind::Access(_))) {
            let _ = changed.try_send(());
        }
    })?;
    watcher.watch(agents, RecursiveMode::Recursive)?;
    Ok(Watched { folder, _watcher: watcher })
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
        let changed = tokio::time::timeout(Duration::from_secs(60), seen.wait_for(same)).await;
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

    #[tokio::test]
    async fn an_agent_that_cannot_be_looked_at_stays_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let agents = root.path();
        let watch = Watch::begin(agents, &[]);
        write(agents, "one", "command = [\"sh\"]\ninstances = 3");
        let definitions = watch::Sender::new(Definitions::new());
        let mut seen = definitions.subscribe();
        let following = tokio::spawn(watch.follow(definitions, |_| Ok(())));
        becomes(&mut seen, &[("one", 3)]).await;
        // A link to itself, for the user of these tests may look into every folder. It is there in one step.
        let (next, file) = (agents.join("one/next"), agents.join("one/agent.toml"));
        std::os::unix::fs::symlink("agent.toml", &next).unwrap();
        std::fs::rename(&next, &file).unwrap();
        write(agents, "two", "command = [\"sh\"]");
        becomes(&mut seen, &[("one", 3), ("two", 1)]).await;
        std::fs::remove_file(&file).unwrap();
        becomes(&mut seen, &[("two", 1)]).await;
        following.abort();
    }

    #[tokio::test]
    async fn a_folder_that_takes_the_place_of_the_agents_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let (agents, other) = (root.path().join("agents"), root.path().join("other"));
        write(&root.path().join("first"), "one", "command = [\"sh\"]");
        write(&other, "two", "command = [\"sh\"]");
        std::os::unix::fs::symlink("first", &agents).unwrap();
        let definitions = watch::Sender::new(Definitions::new());
        let mut seen = definitions.subscribe();
        let following = tokio::spawn(Watch::begin(&agents, &[]).follow(definitions, |_| Ok(())));
        write(&agents, "one", "command = [\"sh\"]\ninstances = 2");
        becomes(&mut seen, &[("one", 2)]).await;
        // As `ln -sfn` does it.
        std::os::unix::fs::symlink("other", root.path().join("next")).unwrap();
        std::fs::rename(root.path().join("next"), &agents).unwrap();
        becomes(&mut seen, &[("two", 1)]).await;
        write(&other, "two", "command = [\"sh\"]\ninstances = 3");
        becomes(&mut seen, &[("two", 3)]).await;
        // As `rm` and `mkdir` do.
        std::fs::remove_file(&agents).unwrap();
        std::fs::remove_dir_all(&other).unwrap();
        write(&agents, "three", "command = [\"sh\"]");
        becomes(&mut seen, &[("three", 1)]).await;
        following.abort();
    }
}
