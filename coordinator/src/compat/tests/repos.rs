//! Repositories: who keeps their list, and what agents find in it when they start.

use super::*;

const PATH: &str = "/api/repos";

fn repo(name: &str) -> Value {
    json!({ "url": format!("https://example.org/acme/{name}.git"), "name": name })
}

async fn names(bed: &Bed, query: &str) -> Vec<String> {
    let path = format!("{PATH}{query}");
    let listed = bed.is(200, "GET", &path, Some(WORKER), Value::Null).await;
    let listed = listed["repos"].as_array().unwrap();
    listed.iter().map(|repo| repo["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn agents_find_the_repositories_that_their_lead_or_a_person_has_listed() {
    let bed = Bed::swarm().await;
    let made = bed.is(201, "POST", PATH, Some(LEAD), repo("web")).await;
    assert_eq!(
        (&made["clonePath"], &made["defaultBranch"], &made["autoClone"]),
        (&json!("/workspace/repos/web"), &json!("main"), &json!(true))
    );
    let mut docs = repo("docs");
    docs.as_object_mut().unwrap().extend([
        ("clonePath".to_owned(), json!("/workspace/docs")),
        ("defaultBranch".to_owned(), json!("trunk")),
        ("autoClone".to_owned(), json!(false)),
    ]);
    let docs = bed.is(201, "POST", PATH, None, docs).await;
    assert_eq!(names(&bed, "").await, ["docs", "web"]);
    assert_eq!(names(&bed, "?autoClone=true").await, ["web"]);
    assert_eq!(names(&bed, "?name=docs").await, ["docs"]);

    let one = format!("{PATH}/{}", docs["id"].as_str().unwrap());
    assert_eq!(bed.is(200, "GET", &one, Some(WORKER), Value::Null).await, docs);
    let changed = bed.is(200, "PUT", &one, Some(LEAD), json!({ "autoClone": true })).await;
    assert_eq!(
        (&changed["autoClone"], &changed["defaultBranch"], &changed["createdAt"]),
        (&json!(true), &json!("trunk"), &docs["createdAt"])
    );
    assert_eq!(names(&bed, "?autoClone=true").await, ["docs", "web"]);
    assert_eq!(bed.is(200, "DELETE", &one, Some(LEAD), Value::Null).await["success"], true);
    for (method, body) in [("GET", Value::Null), ("PUT", json!({})), ("DELETE", Value::Null)] {
        bed.refuses(method, &one, Some(LEAD), body, 404).await;
    }
    assert_eq!(names(&bed, "").await, ["web"]);
}

#[tokio::test]
async fn a_repository_that_cannot_be_one_is_refused() {
    let bed = Bed::swarm().await;
    let web = bed.is(201, "POST", PATH, Some(LEAD), repo("web")).await;
    let with = |field: &str, value: Value| {
        let mut other = repo("other");
        other[field] = value;
        other
    };
    for (agent, body, status) in [
        (WORKER, repo("other"), 403),
        (LEAD, json!({ "name": "other" }), 400),
        (LEAD, with("name", json!("web")), 409),
        (LEAD, with("url", web["url"].clone()), 409),
        (LEAD, with("clonePath", web["clonePath"].clone()), 409),
        (LEAD, with("autoClone", json!("often")), 400),
        (LEAD, with("url", json!("https://x:ghp_secret@example.org/a.git")), 400),
    ] {
        bed.refuses("POST", PATH, Some(agent), body, status).await;
    }
    let path = format!("{PATH}/{}", web["id"].as_str().unwrap());
    bed.refuses("PUT", &path, Some(WORKER), json!({ "autoClone": false }), 403).await;
    assert_eq!(names(&bed, "").await, ["web"]);
}
