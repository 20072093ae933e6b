//! Whatever comes in whatever order.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Deliver { delivery: u8, action: bool },
    Wait { agent: u8, instance: u8, picky: bool, broadcast: bool, seconds: u64 },
    Cancel(usize),
    Unclaim(usize),
    Subscribe { agent: u8, filters: u8 },
    Replay(usize),
    Sleep(u64),
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..12u8, any::<bool>()).prop_map(|(delivery, action)| Step::Deliver { delivery, action }),
        8 => (0..3u8, 0..4u8, any::<bool>(), any::<bool>(), 0..4000u64).prop_map(
            |(agent, instance, picky, broadcast, seconds)| Step::Wait { agent, instance, picky, broadcast, seconds }
        ),
        2 => (0..100usize).prop_map(Step::Cancel),
        4 => (0..100usize).prop_map(Step::Unclaim),
        2 => (0..4u8, 0..3u8).prop_map(|(agent, filters)| Step::Subscribe { agent, filters }),
        1 => (0..100usize).prop_map(Step::Replay),
        2 => prop_oneof![0..4000u64, 0..700_000u64].prop_map(Step::Sleep),
        1 => Just(Step::Restart),
    ]
}

/// A run of random steps, and what agents have been told in it.
struct Story {
    bench: Bench<Triggers>,
    made: u128,
    /// Resumptions that an agent has not given back, with their events.
    told: Vec<(Uuid, Name, Uuid, Envelope)>,
}

impl Story {
    fn command(&mut self, step: &Step) -> Option<Command> {
        let text = |action: bool| if action { "opened" } else { "closed" };
        self.made += 1;
        Some(match *step {
            Step::Deliver { delivery, action } => {
                let delivery = if delivery == 0 { String::new() } else { format!("d{delivery}") };
                deliver(self.made, &delivery, text(action))
            }
            Step::Wait { agent, instance, picky, broadcast, seconds } => Command::Register {
                wait: id(self.made),
                agent: name(&format!("agent-{agent}")),
                instance: InstanceId(format!("agent-{agent}-{instance}")),
                filter: filter(if picky { json!({ "action": "opened" }) } else { json!({}) }),
                registered_at: self.bench.now,
                deadline: self.bench.now + Duration::from_secs(seconds),
                broadcast,
                reply_to: agent_key(&format!("agent-{agent}")),
            },
            Step::Cancel(nth) => {
                let waits: Vec<&Uuid> = self.bench.entity.waits.keys().collect();
                Command::Cancel { wait: **waits.get(nth % waits.len().max(1))? }
            }
            Step::Unclaim(nth) => {
                let nth = nth % self.told.len().max(1);
                self.told.get(nth)?;
                let (receipt, agent, wait, payload) = self.told.swap_remove(nth);
                Command::Unclaimed { receipt, agent, wait, payload, kept: None }
            }
            Step::Subscribe { agent, filters } => {
                subscribe(&format!("agent-{agent}"), vec![filter(json!({})); filters.into()])
            }
            Step::Replay(nth) => {
                let receipts: BTreeSet<&Uuid> = self.bench.entity.receipts.keys().collect();
                let of = **receipts.iter().nth(nth % receipts.len().max(1))?;
                Command::Replay { of, incoming: incoming(self.made, "d1", "opened") }
            }
            Step::Sleep(_) | Step::Restart => return None,
        })
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Sleep(seconds) => self.bench.advance(Duration::from_secs(*seconds)),
            Step::Restart => self.bench.restart(),
            _ => {
                let Some(command) = self.command(step) else { return };
                self.bench.effects.clear();
                self.bench.run(command).unwrap();
                self.note_effects();
            }
        }
    }

    fn note_effects(&mut self) {
        let mut woken: BTreeMap<Name, Vec<&str>> = BTreeMap::new();
        for effect in &self.bench.effects {
            let Effect::Entity { key, command } = effect else { panic!() };
            let (agent, command) = (key.name.clone().unwrap(), command.value());
            if let Some(trigger) = command.get("trigger") {
                let uuid = |field: &str| serde_json::from_value(trigger[field].clone()).unwrap();
                let payload = serde_json::from_value(trigger["payload"].clone()).unwrap();
                self.told.push((uuid("receipt"), agent.clone(), uuid("wait"), payload));
                woken.entry(agent).or_default().push("trigger");
            } else if command.get("enqueue").is_some() {
                woken.entry(agent).or_default().push("enqueue");
            }
        }
        for (agent, kinds) in woken {
            let runs = kinds.iter().filter(|kind| **kind == "enqueue").count();
            assert!(runs == 0 || kinds.len() == 1, "{agent} got a run besides a resumption: {kinds:?}");
        }
    }
}

proptest! {
    #[test]
    fn no_wait_ends_twice_and_no_delivery_counts_twice(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut story = Story { bench: bench(), made: 0, told: Vec::new() };
        for step in &steps {
            story.step(step);
            prop_assert_eq!(&story.bench.restored(), &story.bench.entity);
        }
        let mut resumed = BTreeSet::new();
        let mut deliveries: BTreeMap<String, (Timestamp, Uuid)> = BTreeMap::new();
        for event in &story.bench.events {
            let outcome = match event {
                Event::Received { incoming, at, outcome, .. } => {
                    if !incoming.delivery.is_empty()
                        && let Some((before, receipt)) =
                            deliveries.insert(incoming.delivery.clone(), (*at, incoming.receipt))
                    {
                        // What nobody took is taken up again under its own receipt.
                        prop_assert!(at.since(before) >= 7 * DAY || receipt == incoming.receipt);
                    }
                    outcome
                }
                Event::HandedOn { outcome, .. } => outcome,
                _ => continue,
            };
            for resumption in &outcome.resumed {
                prop_assert!(resumed.insert(resumption.wait), "{} was resumed twice", resumption.wait);
            }
        }
    }
}
