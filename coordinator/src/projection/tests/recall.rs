//! Searches of the memory: what they find, in which order, and who finds it.

use proptest::prelude::*;
use skein_shared::memory::{Model, Scope, Source, Vector};

use super::*;

const ANNA: Uuid = Uuid::from_u128(0xA);
const BEN: Uuid = Uuid::from_u128(0xB);

fn memory() -> EntityKey {
    EntityKey::of(Kind::Memory, &name("default"))
}

fn model() -> Model {
    Model { name: "m".to_owned(), dimensions: None }
}

fn learning(id: &str, owner: Uuid, scope: Scope, content: &str) -> DocumentChange {
    let body = json!({"id": id, "agentId": owner, "scope": scope, "name": "n", "content": content,
        "source": "manual", "tags": []});
    put(&format!("memory/{id}"), body)
}

fn vector(id: &str, owner: Uuid, scope: Scope, model: &Model, values: &[f32]) -> DocumentChange {
    let body = json!({"memoryId": id, "agentId": owner, "scope": scope, "source": "manual", "modelId": model.id(),
        "model": model.name, "vector": Vector::of(values).unwrap()});
    put(&format!("vector/{id}"), body)
}

fn meaning(text: &str, values: &[f32]) -> Sought {
    Sought { meaning: Some((model(), Vector::of(values).unwrap())), ..sought(text) }
}

fn as_seen(sought: Sought, by: Uuid, scope: Option<Scope>) -> Sought {
    Sought { seen: Seen { by: Some(by), scope }, ..sought }
}

async fn find(projection: &Projection, sought: Sought) -> Vec<(String, Option<f32>)> {
    let hits = projection.search(&memory(), sought).await.unwrap();
    assert!(hits.windows(2).all(|pair| pair[0].score >= pair[1].score), "{hits:?}");
    let id = |hit: &Hit| hit.body["id"].as_str().unwrap().to_owned();
    hits.iter().map(|hit| (id(hit), hit.similarity)).collect()
}

async fn ids(projection: &Projection, sought: Sought) -> Vec<String> {
    find(projection, sought).await.into_iter().map(|(id, _)| id).collect()
}

#[tokio::test]
async fn search_finds_words_and_ranks_titles_higher() {
    let mut world = World::new();
    let documents = vec![
        put("memory/1", json!({"id": "1", "name": "Deploying", "content": "use the blue button"})),
        put(
            "memory/2",
            json!({"id": "2", "name": "Notes", "content": "deploy on Fridays, café", "scope": "agent", "source": "file_index"}),
        ),
        put("memory/3", json!({"id": "3", "name": "Other", "content": "nothing of the sort"})),
        put("other/4", json!({"id": "4", "name": "deploy", "content": "deploy"})),
    ];
    world.feed(&memory(), documents, vec![]).await;
    world.settle().await;
    let find = async |sought: Sought| ids(&world.projection, sought).await;
    assert_eq!(find(sought("how to deploy?")).await, ["1", "2"]);
    assert_eq!(find(sought("CAFE")).await, ["2"]);
    let agents = Seen { by: None, scope: Some(Scope::Agent) };
    assert_eq!(find(Sought { seen: agents, ..sought("deploy") }).await, ["2"]);
    assert_eq!(find(Sought { source: Some(Source::FileIndex), ..sought("deploy") }).await, ["2"]);
    assert_eq!(find(Sought { source: Some(Source::Manual), ..sought("deploy") }).await, Vec::<String>::new());
    assert_eq!(find(sought("* \" AND (")).await, Vec::<String>::new());
    assert_eq!(find(sought("of the")).await, ["3", "1"], "filling counts where there is nothing else");
    assert_eq!(find(sought("of the button")).await, ["1"]);
    assert_eq!(find(Sought { limit: 1, ..sought("deploy") }).await, ["1"]);
    let elsewhere = EntityKey::of(Kind::Memory, &name("other"));
    assert_eq!(world.projection.search(&elsewhere, sought("deploy")).await.unwrap(), []);
}

/// Of so many that not all are ranked.
#[tokio::test]
async fn frequent_words_do_not_hide_what_has_a_rare_one() {
    const MANY: usize = 3000;
    let mut world = World::new();
    let documents = (0..MANY).map(|number| {
        let mut text = "the cluster".to_owned();
        for (word, is_there) in [
            ("node", number % 20 < 2),
            ("deploy", number % 20 == 0 || number % 20 == 19),
            ("roll back", number == 3),
            ("quorum", number == 1 || number == 19),
        ] {
            if is_there {
                text.push(' ');
                text.push_str(word);
            }
        }
        learning(&format!("{number:04}"), ANNA, Scope::Swarm, &text)
    });
    world.feed(&memory(), documents.collect(), vec![]).await;
    let elsewhere = EntityKey::of(Kind::Memory, &name("elsewhere"));
    let mut documents = vec![learning("short", ANNA, Scope::Swarm, "cluster, cluster")];
    documents.extend((0..1000).map(|number| {
        let text = "one cluster among many more words than the other one has";
        learning(&format!("long-{number}"), ANNA, Scope::Swarm, text)
    }));
    world.feed(&elsewhere, documents, vec![]).await;
    world.settle().await;
    let find = async |text: &str, limit| ids(&world.projection, Sought { limit, ..sought(text) }).await;

    assert_eq!(find("quorum", 5).await, ["0001", "0019"]);
    assert_eq!(find("quorum deploy", 2).await, ["0019", "0001"], "a frequent word counts beside a rare one");
    assert_eq!(find("roll out a deploy", 2).await[0], "0003");
    let both = find("deploy node", 100).await;
    assert_eq!(both.len(), 100);
    let has_both = |id: &String| id.parse::<usize>().unwrap() % 20 == 0;
    assert!(both.iter().all(has_both), "those with both words come first: {both:?}");
    let newest = ["2999", "2998"];
    assert_eq!(find("cluster", 2).await, newest, "all have it, so the newest are shown");
    assert_eq!(find("cluster unheard", 2).await, newest);
    assert_eq!(find("cluster quorum", 4).await, ["0001", "0019", newest[0], newest[1]]);
    let hits = world.projection.search(&elsewhere, sought("cluster")).await.unwrap();
    assert_eq!(hits[0].body["id"], "short", "the oldest of a small memory is ranked with all others");
}

#[tokio::test]
async fn words_and_meaning_are_put_together() {
    let mut world = World::new();
    let old = Model { name: "old".to_owned(), dimensions: None };
    let ours = |id, content: &str| learning(id, ANNA, Scope::Swarm, content);
    let means = |id, values: &[f32]| vector(id, ANNA, Scope::Swarm, &model(), values);
    let documents = vec![
        ours("1", "the build is red"),
        ours("2", "compilation fails"),
        ours("3", "build with care"),
        ours("4", "lunch at noon"),
        ours("5", "an older model knew this"),
        means("1", &[1.0, 0.0]),
        means("2", &[0.9, 0.1]),
        means("4", &[-1.0, 0.0]),
        vector("5", ANNA, Scope::Swarm, &old, &[1.0, 0.0]),
    ];
    world.feed(&memory(), documents, vec![]).await;
    world.settle().await;
    let found = find(&world.projection, meaning("build", &[1.0, 0.0])).await;
    let order: Vec<&str> = found.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(order, ["1", "3", "2", "4"], "what both know comes first");
    assert!(found[0].1 > Some(0.99) && found[3].1 < Some(-0.99), "{found:?}");
    assert_eq!(found[1].1, None, "its vector is not there yet");
    let short = ids(&world.projection, meaning("build", &[1.0, 0.0, 0.0])).await;
    assert_eq!(short.len(), 2, "vectors of other dimensions are not compared: {short:?}");

    // A vector follows its learning, and its row what becomes of it.
    let gone = DocumentChange::Delete { key: "vector/1".to_owned() };
    let refused = put("vector/2", json!({"vector": null, "problem": "too long"}));
    world.feed(&memory(), vec![gone, refused, means("3", &[0.0, 1.0])], vec![]).await;
    world.settle().await;
    let found = find(&world.projection, meaning("lunch", &[0.0, 1.0])).await;
    assert_eq!(found.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["4", "3"]);
    assert_eq!(find(&world.rebuilt().await, meaning("lunch", &[0.0, 1.0])).await, found);
    let body = world.projection.list(Query::new(&name("default"), Kind::Memory, "vector")).await.unwrap();
    assert!(body.iter().all(|body| body.get("vector").is_none()), "codes are kept once: {body:?}");
}

#[tokio::test]
async fn what_is_hidden_takes_nobodys_place() {
    let mut world = World::new();
    let mut documents = vec![
        learning("anna", ANNA, Scope::Agent, "deploy with the long, long and very long script of ours"),
        vector("anna", ANNA, Scope::Agent, &model(), &[0.1, 1.0]),
        learning("swarm", BEN, Scope::Swarm, "once in a while deploy on a Friday, if it has to be so"),
        vector("swarm", BEN, Scope::Swarm, &model(), &[0.0, 1.0]),
    ];
    for number in 0..2 * 200 {
        let id = format!("ben-{number:03}");
        documents.push(learning(&id, BEN, Scope::Agent, "deploy"));
        documents.push(vector(&id, BEN, Scope::Agent, &model(), &[1.0, 0.0]));
    }
    world.feed(&memory(), documents, vec![]).await;
    world.settle().await;
    let sorted = async |sought: Sought| {
        let mut ids = ids(&world.projection, sought).await;
        ids.sort();
        ids
    };
    for wanted in [sought("deploy"), meaning("deploy", &[1.0, 0.0]), meaning("unheard of", &[1.0, 0.0])] {
        assert_eq!(sorted(as_seen(wanted.clone(), ANNA, None)).await, ["anna", "swarm"], "{wanted:?}");
        assert_eq!(sorted(as_seen(wanted.clone(), ANNA, Some(Scope::Agent))).await, ["anna"]);
        assert_eq!(sorted(as_seen(wanted.clone(), ANNA, Some(Scope::Swarm))).await, ["swarm"]);
        assert_eq!(sorted(as_seen(wanted, Uuid::nil(), None)).await, ["swarm"]);
    }
}

/// What becomes of a learning, and whether somebody looks then.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Write,
    Look,
    Forget,
    Trim,
}

fn any_then() -> impl Strategy<Value = Then> {
    prop::sample::select(vec![Then::Write, Then::Look, Then::Forget, Then::Trim])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// By meaning the same comes first as without any index, whatever was written, looked at and trimmed in which
    /// order.
    #[test]
    fn the_nearest_are_found(
        written in prop::collection::vec((0u8..12, prop::array::uniform3(-1.0f32..1.0), any_then()), 1..40),
        wanted in prop::array::uniform3(-1.0f32..1.0),
    ) {
        let usable = |values: &[f32; 3]| values.iter().any(|value| value.abs() > 0.01);
        prop_assume!(usable(&wanted));
        block_on(async {
            let mut world = World::new();
            let mut known: BTreeMap<String, Vector> = BTreeMap::new();
            let query = Vector::of(&wanted).unwrap();
            for (id, values, then) in written.iter().filter(|(_, values, _)| usable(values)) {
                let id = format!("{id:02}");
                let (learning_key, vector_key) = (format!("memory/{id}"), format!("vector/{id}"));
                let documents = if *then == Then::Forget {
                    known.remove(&id);
                    [learning_key, vector_key].map(|key| DocumentChange::Delete { key }).into()
                } else {
                    known.insert(id.clone(), Vector::of(values).unwrap());
                    vec![learning(&id, ANNA, Scope::Swarm, "x"), vector(&id, ANNA, Scope::Swarm, &model(), values)]
                };
                world.feed(&memory(), documents, vec![]).await;
                if *then == Then::Trim {
                    world.projection.trim(Timestamp::ZERO, Timestamp::ZERO, u64::MAX);
                }
                if *then == Then::Write {
                    continue;
                }
                world.settle().await;
                let mut want: Vec<(String, f32)> = known
                    .iter()
                    .map(|(id, vector)| (id.clone(), query.cosine(vector.scale(), vector.codes()).unwrap()))
                    .collect();
                want.sort_by(|(_, one), (_, other)| other.total_cmp(one));
                want.truncate(10);
                let want: Vec<_> = want.into_iter().map(|(id, near)| (id, Some(near))).collect();
                assert_eq!(find(&world.projection, meaning("", &wanted)).await, want);
            }
        });
    }
}
