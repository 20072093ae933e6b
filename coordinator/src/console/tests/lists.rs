//! Lists that are longer than a page, and numbers of what is longer still.

use super::*;
use crate::auth::Principal;

impl Answer {
    /// The query of the next page.
    fn more(&self) -> String {
        let (before, _) = self.text.split_once("\" rel=\"next\"").expect("no next page");
        before.rsplit('"').next().unwrap().replace("&#x2f;", "/").replace("&amp;", "&")
    }

    fn count(&self, text: &str) -> usize {
        self.text.matches(text).count()
    }
}

impl Bed {
    async fn tell(&self, agent: &str, command: agent::Command) -> agent::Reply {
        let key = EntityKey::agent(&name("default"), &name(agent));
        self.node.entities.ask::<Agent>(&key, Asking::once(Uuid::now_v7()), command).await.unwrap()
    }

    async fn define(&self, agent: &str) {
        let (definition, group) = (agent::Definition::default(), name("default"));
        self.tell(agent, agent::Command::Define { definition, group }).await;
    }

    async fn wish(&self, agent: &str, class: agent::Class, source: &str) -> agent::Reply {
        let (source, input) = (source.to_owned(), json!({}));
        self.tell(agent, agent::Command::Enqueue { class, source, receipt: None, input }).await
    }

    /// What came from outside for an agent that takes no work.
    async fn give_up(&self, agent: &str, source: &str) {
        let reply = self.wish(agent, agent::Class::Webhook, source).await;
        assert!(matches!(reply, agent::Reply::DeadLettered { .. }), "{reply:?}");
    }
}

#[tokio::test]
async fn who_resumes_one_agent_of_a_swarm_that_is_paused_is_told_so() {
    let bed = Bed::new();
    bed.define("ann").await;
    let operator = bed.session(Role::Operator).await;
    bed.act(&operator, "steer-swarm", &[("order", "pause")]).await;
    let shown = bed.get("/console/default/agents/ann", &operator).await;
    let offers = |offer: &str| shown.text.contains(offer);
    assert!(offers("All agents of this swarm are paused.") && offers("do/steer-swarm"), "{}", shown.text);
    let resume = [("agent", "ann"), ("order", "resume")];
    let said = bed.act(&operator, "steer-agent", &resume).await;
    let held =
        "ann: resumed; all agents of the swarm are paused, so it starts nothing before you resume them all.";
    assert!(said.text.contains(held), "{}", said.text);
    bed.act(&operator, "steer-swarm", &[("order", "resume")]).await;
    let said = bed.act(&operator, "steer-agent", &resume).await;
    assert!(said.text.contains("ann: resumed.<"), "{}", said.text);
}

#[tokio::test]
async fn a_board_shows_so_many_of_each_column_and_lists_go_on() {
    let bed = Bed::new();
    for number in 0..70 {
        bed.task(&format!("task number {number}"), Vec::new()).await;
    }
    let operator = bed.session(Role::Operator).await;
    let board = bed.get("/console/default/board", &operator).await;
    assert_eq!(board.text.matches("class=\"card\"").count(), 20);
    assert!(board.text.contains("?status=unassigned\">70 unassigned</a>"), "{}", board.text);
    let first = bed.get("/console/default/tasks?status=unassigned", &operator).await;
    let second = bed.get(&format!("/console/default/tasks{}", first.more()), &operator).await;
    let tasks = |page: &Answer| page.text.matches("task number ").count();
    assert_eq!((tasks(&first), tasks(&second)), (50, 20), "{}", second.text);
}

#[tokio::test]
async fn runs_under_way_are_counted_however_many_have_ended_since() {
    let bed = Bed::new();
    for holder in ["one", "two"] {
        let instance = InstanceId(format!("{holder}-00000001"));
        bed.tell(holder, agent::Command::Attach { instance, agent_id: Uuid::from_u128(1) }).await;
    }
    bed.define("worker").await;
    for number in 0..51 {
        let reply = bed.wish("worker", agent::Class::Manual, &format!("wish {number}")).await;
        let agent::Reply::Queued { instance } = reply else { panic!("{reply:?}") };
        bed.tell("worker", agent::Command::Kill { instance, reason: "no more".to_owned() }).await;
    }
    let shown = bed.get("/console/default", &bed.session(Role::Operator).await).await;
    assert!(shown.text.contains("<b>2</b><span>runs under way</span>"), "{}", shown.text);
}

#[tokio::test]
async fn what_was_given_up_is_listed_to_its_end() {
    let bed = Bed::new();
    bed.define("idle").await;
    bed.tell("idle", agent::Command::SetEnabled { enabled: false }).await;
    bed.give_up("idle", "the first of all").await;
    for number in 0..60 {
        bed.give_up("nobody", &format!("letter number {number}")).await;
    }
    let operator = bed.session(Role::Operator).await;
    let overview = bed.get("/console/default", &operator).await;
    assert!(overview.text.contains("61 runs were given up"), "{}", overview.text);
    let path = "/console/default/deliveries";
    let first = bed.get(path, &operator).await;
    assert!(first.more().contains("letters_after="), "{}", first.more());
    let second = bed.get(&format!("{path}{}", first.more()), &operator).await;
    let rows = [&first, &second].map(|page| page.count("data-label=\"Did not for\""));
    let numbered = [&first, &second].map(|page| page.count("letter number "));
    assert_eq!((rows, numbered.iter().sum::<usize>()), ([50, 11], 60), "{}", second.text);
    assert!(second.text.contains("From the beginning") && !second.text.contains("rel=\"next\""));
    let agents = bed.get("/console/default/agents", &operator).await;
    assert!(agents.text.contains("/deliveries?agent=idle\" class=\"tag bad\">1 given up"), "{}", agents.text);
    let of_idle = bed.get(&format!("{path}?agent=idle"), &operator).await;
    let counts = ["letter number ", "the first of all"].map(|text| of_idle.count(text));
    assert_eq!(counts, [0, 1], "{}", of_idle.text);
}

#[tokio::test]
async fn a_run_of_many_calls_says_that_not_all_are_shown() {
    let bed = Bed::new();
    let boss = Principal::named("boss", Role::Worker);
    let operator = bed.session(Role::Operator).await;
    let mut shown = Vec::new();
    for calls in [50, 1] {
        for _ in 0..calls {
            // It is refused, and a call all the same.
            bed.service.call_agent(&boss, Uuid::now_v7(), "boss", "go on".to_owned()).await.unwrap_err();
        }
        let page = bed.get("/console/default/runs/boss-00000001", &operator).await;
        shown.push((page.count("<span>calls boss"), page.text.contains("There are more")));
    }
    assert_eq!(shown, [(50, false), (50, true)]);
}

#[tokio::test]
async fn a_search_says_how_many_it_leaves_out() {
    let bed = Bed::new();
    for number in 0..55 {
        bed.task(&format!("paint wall {number}"), Vec::new()).await;
    }
    bed.task("sweep the floor", Vec::new()).await;
    let observer = bed.session(Role::Observer).await;
    let path = "/console/default/tasks";
    let first = bed.get(&format!("{path}?search=wall"), &observer).await;
    let second = bed.get(&format!("{path}{}", first.more()), &observer).await;
    for (page, shown) in [(&first, 50), (&second, 5)] {
        assert_eq!(page.count("paint wall "), shown, "{}", page.text);
        let told = format!("{shown} of the 55 tasks");
        assert!(page.text.contains(&told), "{}", page.text);
    }
    assert!(!second.text.contains("rel=\"next\""), "{}", second.text);
    let whole = bed.get(&format!("{path}?search=floor"), &observer).await;
    assert!(whole.count("sweep the floor") == 1 && !whole.text.contains(" of the "), "{}", whole.text);
}
