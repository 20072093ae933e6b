//! Who may speak to a swarm: those whom the settings name, and whoever has an address at one of their domains, as Slack
//! says.
//!
//! A look-up that takes long goes on behind the event that has waited for it, and its answer is remembered: Slack sends
//! again what was not taken in, and by then it may be known who has said it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::client::Client;
use super::error::Error;
use super::method::USER;
use super::workspace::args;

/// How long we remember whether somebody may speak, and of how many.
const REMEMBER: Duration = Duration::from_secs(600);
const PEOPLE: usize = 10_000;
/// How long a look-up keeps events at the door. Others wait behind them, and Slack, which wants its answer within three
/// seconds, sends them again.
const LOOK_UP: Duration = Duration::from_secs(3);
/// How long nobody else is looked up when Slack did not say: each would wait as long.
const SILENT: Duration = Duration::from_secs(5);
/// How many are looked up at a time. Slack takes fewer calls in the time that an event waits.
const AT_A_TIME: usize = 16;
/// Events that bring what somebody says.
const SAID: [&str; 2] = ["message", "app_mention"];

/// The people of a workspace, as far as it matters whether they may speak.
pub(super) struct People {
    client: Arc<Client>,
    swarm: Name,
    allowed: Allowed,
    found: Mutex<Found>,
    /// It is said once that Slack shows no addresses.
    no_address: Once,
}

/// Who may speak to a swarm.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) users: Vec<String>,
    pub(super) domains: Vec<String>,
}

/// What was found out of them, and is being found out.
#[derive(Default)]
struct Found {
    /// Whether a person may speak, and when that was found out.
    known: BTreeMap<String, (bool, Instant)>,
    under_way: BTreeMap<String, LookUp>,
    /// When Slack last did not say who somebody is.
    silent: Option<Instant>,
}

/// Whether a person may speak, if Slack has said who it is.
type Said = Result<bool, Error>;

/// A look-up that is under way.
#[derive(Clone)]
struct LookUp {
    /// From then on no event waits for it any more.
    late: Instant,
    said: watch::Receiver<Option<Said>>,
}

/// As long as a look-up goes on. However it ends, by a panic too, its person can be looked up again, and others in its
/// place.
struct UnderWay {
    people: Arc<People>,
    user: String,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.people.found().under_way.remove(&self.user);
    }
}

impl Allowed {
    fn is_open(&self) -> bool {
        self.users.is_empty() && self.domains.is_empty()
    }

    fn has_domain_of(&self, address: &str) -> bool {
        let domain = address.rsplit_once('@').map(|(_, domain)| domain);
        domain.is_some_and(|domain| self.domains.iter().any(|one| one.eq_ignore_ascii_case(domain)))
    }
}

impl Found {
    fn known(&self, user: &str) -> Option<bool> {
        self.known.get(user).filter(|(_, since)| since.elapsed() < REMEMBER).map(|(may, _)| *may)
    }

    fn remember(&mut self, user: String, may: bool) {
        if self.known.len() >= PEOPLE {
            self.known.clear();
        }
        self.known.insert(user, (may, Instant::now()));
    }
}

impl People {
    pub(super) fn new(client: Arc<Client>, swarm: Name, allowed: Allowed) -> Arc<Self> {
        Arc::new(Self { client, swarm, allowed, found: Mutex::default(), no_address: Once::new() })
    }

    /// Like [`super::Workspace::may_speak`].
    pub(super) async fn may_speak(
        self: &Arc<Self>,
        event: &str,
        user: Option<&str>,
    ) -> Result<bool, Refusal> {
        if self.allowed.is_open() {
            return Ok(true);
        }
        let Some(user) = user else { return Ok(!SAID.contains(&event)) };
        if self.allowed.users.iter().any(|one| one == user) {
            return Ok(true);
        }
        if self.allowed.domains.is_empty() {
            return Ok(false);
        }
        let known = self.found().known(user);
        if let Some(known) = known {
            return Ok(known);
        }
        // Whatever Slack's word is, nothing is wrong with what was said: it is to come again.
        let again = |problem: Error| Refusal { code: Code::Unavailable, ..problem.refusal() };
        self.look_up(user).await.map_err(again)
    }

    /// What Slack says of a person, if it does so soon.
    async fn look_up(self: &Arc<Self>, user: &str) -> Said {
        let LookUp { late, mut said } = self.look_up_of(user)?;
        let soon = timeout_at(late, said.wait_for(Option::is_some)).await;
        let said = soon.ok().and_then(|said| said.ok()?.clone()).unwrap_or_else(|| Err(unanswered()));
        if said.as_ref().is_err_and(Error::is_passing) {
            let mut found = self.found();
            found.silent = found.silent.max(Some(Instant::now().min(late)));
        }
        said
    }

    /// The look-up of a person that is under way; or else a new one, unless Slack has just been silent or there are too
    /// many.
    fn look_up_of(self: &Arc<Self>, user: &str) -> Result<LookUp, Error> {
        let mut found = self.found();
        if found.silent.is_some_and(|since| since.elapsed() < SILENT) {
            return Err(unanswered());
        }
        if let Some(under_way) = found.under_way.get(user) {
            return Ok(under_way.clone());
        }
        if found.under_way.len() >= AT_A_TIME {
            return Err(unanswered());
        }
        let (tell, said) = watch::channel(None);
        let look_up = LookUp { late: Instant::now() + LOOK_UP, said };
        found.under_way.insert(user.to_owned(), look_up.clone());
        tokio::spawn(Arc::clone(self).ask(user.to_owned(), tell));
        Ok(look_up)
    }

    /// Asks Slack, as long as a call may take, and remembers what it says.
    async fn ask(self: Arc<Self>, user: String, tell: watch::Sender<Option<Said>>) {
        let under_way = UnderWay { people: Arc::clone(&self), user: user.clone() };
        let said = match self.client.call(&USER, args(json!({"user": user}))).await {
            Ok(answer) => Ok(self.is_of_a_domain(&answer["user"])),
            Err(problem) if problem.is_unknown_person() => Ok(false),
            Err(problem) => Err(problem),
        };
        if let Some(problem) = said.as_ref().err().filter(|problem| !problem.is_passing()) {
            warn!(swarm = %self.swarm, %problem, "whether people may speak cannot be looked up, so none is heard");
        }
        if let Ok(may) = said {
            self.found().remember(user, may);
        }
        // Whoever asks from now on is told what is remembered, or asks Slack again.
        drop(under_way);
        tell.send_replace(Some(said));
    }

    fn is_of_a_domain(&self, person: &Value) -> bool {
        let address = person["profile"]["email"].as_str().unwrap_or_default();
        if address.is_empty() && person["is_bot"] != true {
            self.no_address.call_once(|| {
                warn!(
                    swarm = %self.swarm,
                    "Slack shows no addresses, so `allowed_domains` lets nobody in: give the app the scope users:read.email"
                );
            });
        }
        self.allowed.has_domain_of(address)
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unanswered() -> Error {
    Error::Unanswered { method: USER.name, problem: "it takes too long".to_owned() }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::net::TcpListener;
    use url::Url;

    use super::*;

    /// Those of a Slack that takes whatever it is asked, and answers nothing for as long as the listener is there.
    async fn people() -> (TcpListener, Arc<People>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}/api/", listener.local_addr().unwrap());
        let client = Client::new(Url::parse(&api).unwrap(), "xoxb".into(), None).unwrap();
        let allowed = Allowed { users: Vec::new(), domains: vec!["acme.example".to_owned()] };
        (listener, People::new(Arc::new(client), Name::parse("default").unwrap(), allowed))
    }

    async fn ask(people: &Arc<People>, user: &str) -> Code {
        people.may_speak("message", Some(user)).await.unwrap_err().code
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_strangers_at_once_so_many_are_looked_up_and_each_once() {
        let (_listener, people) = people().await;
        let begun = Instant::now();
        let strangers: Vec<String> = (0..AT_A_TIME + 3).map(|number| format!("U{number}")).collect();
        let twice = strangers.iter().chain(&strangers).map(|stranger| ask(&people, stranger));
        assert!(join_all(twice).await.into_iter().all(|code| code == Code::Unavailable));
        assert_eq!(begun.elapsed().as_secs(), LOOK_UP.as_secs());
        let under_way: Vec<String> = people.found().under_way.keys().cloned().collect();
        assert_eq!(under_way.len(), AT_A_TIME);
        assert!(strangers[..AT_A_TIME].iter().all(|stranger| under_way.contains(stranger)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_keeps_events_at_the_door_for_its_first_moments_alone() {
        let (_listener, people) = people().await;
        assert_eq!(ask(&people, "U1").await, Code::Unavailable);
        tokio::time::advance(SILENT).await;
        let again = Instant::now();
        assert_eq!(ask(&people, "U1").await, Code::Unavailable);
        assert_eq!(again.elapsed(), Duration::ZERO, "it is under way for long");
        assert_eq!(ask(&people, "U2").await, Code::Unavailable);
        assert_eq!(again.elapsed().as_secs(), LOOK_UP.as_secs(), "another one is asked for");
    }

    #[tokio::test]
    async fn a_look_up_that_breaks_off_keeps_neither_its_person_nor_its_place() {
        let (listener, people) = people().await;
        let (tell, said) = watch::channel(None);
        people.found().under_way.insert("U1".to_owned(), LookUp { late: Instant::now(), said });
        let asking = tokio::spawn(Arc::clone(&people).ask("U1".to_owned(), tell));
        listener.accept().await.unwrap();
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        assert!(people.found().under_way.is_empty());
    }
}
