use std::time::Duration;

use skein_shared::triggers::subscription;

use super::*;
use crate::config::Provider;
use crate::store::redis::Durability;

fn read(text: &str) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hook.key"), "from-file\n").unwrap();
    let file = folder.path().join("config.toml");
    std::fs::write(&file, text).unwrap();
    load(&file, &Overrides::default())
}

#[test]
fn without_a_file_the_defaults_hold_and_the_command_line_wins() {
    let overrides = Overrides {
        http: Some("127.0.0.1:9000".parse().unwrap()),
        runner: Some(false),
        ..Overrides::default()
    };
    let config = load(Path::new("/nowhere/config.toml"), &overrides).unwrap();
    assert_eq!(config.listen.http.port(), 9000);
    assert_eq!(config.listen.grpc.port(), 7701);
    assert!(!config.runner.enabled);
}

#[test]
fn a_link_that_leads_nowhere_is_no_file_that_was_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (link, file) = (folder.path().join("config.toml"), folder.path().join("mounted.toml"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let error = load(&link, &Overrides::default()).unwrap_err().to_string();
    assert!(error.contains("config.toml") && error.contains("remove the link"), "{error}");
    std::fs::write(file, "[runner]\nslots = 7").unwrap();
    assert_eq!(load(&link, &Overrides::default()).unwrap().runner.slots, 7);
}

#[test]
fn a_lease_is_long_enough_to_be_renewed_and_shards_move_neither_at_once_nor_too_late() {
    let cluster = |settings: &str| read(&format!("[cluster]\n{settings}"));
    let shortest = cluster("lease = \"2s\"\nsettle = \"200ms\"").unwrap();
    assert_eq!(shortest.cluster.lease, Duration::from_secs(2));
    let error = cluster("lease = \"1999ms\"").unwrap_err().to_string();
    assert!(error.contains("`cluster.lease` must be 2 s at least"), "{error}");
    let longest = cluster("lease = \"1h\"").unwrap();
    assert_eq!(longest.cluster.lease, Duration::from_secs(3600));
    let error = cluster("lease = \"3601s\"").unwrap_err().to_string();
    assert!(error.contains("`cluster.lease` must be 1 h at most"), "{error}");
    let error = cluster("settle = \"0s\"").unwrap_err().to_string();
    assert!(error.contains("`cluster.settle` must be more than nothing"), "{error}");
}

/// They would let nobody in, and say nothing.
#[test]
fn people_who_can_be_nobody_are_refused() {
    let workspace = |more: &str| read(&format!("[[slack.workspace]]\nbot_token = \"xoxb-1\"\n{more}"));
    workspace("allowed_users = [\"U024BE7LH\", \"W1\"]\nallowed_domains = [\"acme.com\"]").unwrap();
    for (setting, wrong) in [
        ("allowed_users", "ada"),
        ("allowed_users", "@U1"),
        ("allowed_users", "U1,U2"),
        ("allowed_users", ""),
        ("allowed_domains", "@acme.com"),
        ("allowed_domains", "*.acme.com"),
        ("allowed_domains", "https://acme.com"),
        ("allowed_domains", "acme.com, acme.org"),
        ("allowed_domains", ""),
    ] {
        let error = workspace(&format!("{setting} = [\"{wrong}\"]")).unwrap_err().to_string();
        assert!(error.contains(&format!("`{wrong}` among its `{setting}`")), "{error}");
    }
    let mail = |setting: &str, domain: &str| {
        let source = "[[ingress.source]]\nname = \"mail\"\nprovider = \"agentmail\"\nsecret = \"c2VjcmV0\"";
        read(&format!("{source}\n{setting} = [\"{domain}\"]"))
    };
    for setting in ["inbox_domains", "sender_domains"] {
        let error = mail(setting, "ada@acme.com").unwrap_err().to_string();
        assert!(error.contains("`ada@acme.com` among its"), "{error}");
    }
}

#[test]
fn people_whom_somebody_lets_in_by_another_spelling_are_not_refused() {
    // A server that speaks as Slack does has ids of its own.
    let mattermost = "bot_token = \"xoxb-1\"\napi = \"https://chat.acme.com/api\"";
    let elsewhere =
        |user: &str| read(&format!("[[slack.workspace]]\n{mattermost}\nallowed_users = [\"{user}\"]"));
    elsewhere("8fy1bkh3xfd5bd6o1k3cmqbkzw").unwrap();
    for wrong in ["@ada", "ada, bob", ""] {
        let error = elsewhere(wrong).unwrap_err().to_string();
        assert!(error.contains("among its `allowed_users`"), "{error}");
    }
    // It is compared without the space.
    let mail = "[[ingress.source]]\nname = \"mail\"\nprovider = \"agentmail\"\nsecret = \"c2VjcmV0\"";
    read(&format!("{mail}\ninbox_domains = [\" AgentMail.to \"]")).unwrap();
}

#[test]
fn brackets_belong_around_an_address_of_ipv6_and_may_stand_around_any() {
    for (setting, said, used) in [
        ("node", "[10.0.0.1]:7703", "10.0.0.1:7703"),
        ("node", "[fd00::1]:7703", "[fd00::1]:7703"),
        ("node", "node-1:7703", "node-1:7703"),
        ("advertise", "[10.0.0.1]:7703", "10.0.0.1:7703"),
    ] {
        let cluster = read(&format!("[cluster]\n{setting} = \"{said}\"")).unwrap().cluster;
        let found = if setting == "node" { Some(cluster.node) } else { cluster.advertise };
        assert_eq!(found.as_deref(), Some(used), "{setting}");
    }
    for setting in ["node", "advertise"] {
        let error = read(&format!("[cluster]\n{setting} = \"fd00::1:7703\"")).unwrap_err().to_string();
        assert!(error.contains(&format!("`cluster.{setting}`")) && error.contains("in brackets"), "{error}");
    }
}

#[test]
fn a_public_address_is_one_that_paths_can_follow() {
    let address = |setting: &str, url: &str| read(&format!("[listen]\n{setting} = \"{url}\""));
    for good in ["https://skein.example.com", "http://10.0.0.1:7700/skein/"] {
        address("public_url", good).unwrap();
    }
    address("runner_url", "http://10.0.0.1:7701/").unwrap();
    let bad = ["skein.example.com", "foo", "", "ftp://a", "http://a/?b=c", "box:7700", "http://[::]:1"];
    for (setting, bad) in bad.into_iter().flat_map(|bad| [("public_url", bad), ("runner_url", bad)]) {
        let error = address(setting, bad).unwrap_err().to_string();
        assert!(error.contains(setting) && error.contains("with its scheme"), "{bad}: {error}");
    }
    for bad in ["http://10.0.0.1:7701/skein", "https://10.0.0.1:7701"] {
        let error = address("runner_url", bad).unwrap_err().to_string();
        assert!(error.contains("http, and without a path"), "{bad}: {error}");
    }
    address("services_domain", "swarm.example.com").unwrap();
    for bad in ["", "https://a.example", "a.example:80", "a.example/x", "a@b", "a..b", ".", "10.0.0.1"] {
        let error = address("services_domain", bad).unwrap_err().to_string();
        assert!(error.contains("`listen.services_domain`") && error.contains("alone"), "{bad}: {error}");
    }
}

#[test]
fn one_key_for_all_needs_a_word_of_its_own_beyond_loopback() {
    let compat = |listen: &str, more: &str| {
        read(&format!("[listen]\nhttp = \"{listen}\"\n[compat]\nmode = \"agent-swarm\"\n{more}"))
    };
    assert!(read("").unwrap().compat.mode.is_none());
    assert!(compat("127.0.0.1:1", "key = \"k\"").unwrap().compat.mode.is_some());
    let error = compat("127.0.0.1:1", "").unwrap_err().to_string();
    assert!(error.contains("SKEIN_COMPAT__KEY"), "{error}");
    let error = compat("0.0.0.0:1", "key = \"hush\"").unwrap_err().to_string();
    assert!(error.contains("--compat-beyond-loopback") && !error.contains("hush"), "{error}");
    compat("0.0.0.0:1", "key = \"k\"\nbeyond_loopback = true").unwrap();
    let error = read("[compat]\nmode = \"other\"").unwrap_err().to_string();
    assert!(error.contains("agent-swarm"), "{error}");
}

#[test]
fn a_mistyped_key_is_refused_with_the_right_one() {
    let error = read("[listen]\nhtpp = \"127.0.0.1:1\"").unwrap_err().to_string();
    assert!(error.contains("`listen.htpp`") && error.contains("did you mean `http`"), "{error}");
    let error = read("[retentoin]\nevents = 1").unwrap_err().to_string();
    assert!(error.contains("`retentoin`") && error.contains("did you mean `retention`"), "{error}");
    let error = read("[runner]\ncompletely_else = 1").unwrap_err().to_string();
    assert!(error.contains("known here: enabled, name"), "{error}");
}

#[test]
fn durations_are_read_as_people_write_them() {
    let config = read("[retention]\nevents_age = \"12h\"\n[limits]\ndrain = \"1m 30s\"").unwrap();
    assert_eq!(config.retention.events_age, Duration::from_secs(12 * 3600));
    assert_eq!(config.limits.drain, Duration::from_secs(90));
    for wrong in ["90", "\"half a minute\""] {
        let error = read(&format!("[limits]\ndrain = {wrong}")).unwrap_err().to_string();
        assert!(error.contains("`limits.drain`") && error.contains("\"1h 30m\""), "{error}");
    }
    let error = read("[limits]\nresult_bytes = 99999999").unwrap_err().to_string();
    assert!(error.contains("between 262144 and 16777216"), "{error}");
    let error = read("[limits]\nwebhook_bytes = 99999999").unwrap_err().to_string();
    assert!(error.contains("between 1 and 10485760"), "{error}");
    let error = read("[retention]\nreplies = \"1m\"").unwrap_err().to_string();
    assert!(error.contains("15m at least"), "{error}");
}

#[test]
fn no_limit_keeps_everybody_out_for_ever() {
    for setting in [
        "webhooks_in_flight",
        "writes_per_second",
        "reads_per_second",
        "searches_per_second",
        "calls_per_agent",
        "waits_per_instance",
        "waits",
    ] {
        let limit = |most: u32| read(&format!("[limits]\n{setting} = {most}"));
        limit(1).unwrap();
        let error = limit(0).unwrap_err().to_string();
        assert!(error.contains(&format!("`limits.{setting}` must be 1 at least")), "{error}");
    }
}

#[test]
fn a_source_needs_one_secret_and_never_shows_it() {
    let config = read(
        "[[ingress.source]]\nname = \"hub\"\nprovider = \"github\"\nsecret = \"hush-hush\"\n\
         [[ingress.source]]\nname = \"ci\"\nprovider = \"generic\"\nsecret_file = \"hook.key\"\nswarm = \"build\"",
    )
    .unwrap();
    let [hub, ci] = config.ingress.source.as_slice() else { panic!("two sources") };
    assert_eq!((hub.provider, hub.swarm.as_str()), (Provider::Github, "default"));
    assert_eq!(ci.secret.as_ref().unwrap().expose_secret(), "from-file");
    assert!(!format!("{config:?}").contains("hush-hush"));

    let none = read("[[ingress.source]]\nname = \"hub\"\nprovider = \"github\"").unwrap_err();
    assert!(none.to_string().contains("has no secret"));
    let number =
        read("[[ingress.source]]\nname = \"hub\"\nprovider = \"github\"\nsecret = 4242").unwrap_err();
    assert!(!number.to_string().contains("4242"), "{number}");
    let twice = "[[ingress.source]]\nname = \"hub\"\nprovider = \"github\"\nsecret = \"a\"\n";
    assert!(read(&twice.repeat(2)).unwrap_err().to_string().contains("twice"));
}

#[test]
fn a_source_without_a_secret_has_to_be_meant() {
    let source = |provider: &str, rest: &str| {
        read(&format!("[[ingress.source]]\nname = \"s\"\nprovider = \"{provider}\"\n{rest}"))
    };
    for provider in ["test", "github", "discord"] {
        assert!(source(provider, "allow_unsigned = true").is_ok(), "{provider}");
        let both = source(provider, "allow_unsigned = true\nsecret = \"x\"").unwrap_err().to_string();
        assert!(both.contains("keep one"), "{both}");
    }
    for (provider, rest, problem) in [
        ("test", "", "allow_unsigned = true"),
        ("slack", "allow_unsigned = false", "has no secret"),
        ("discord", "secret = \"x\"", "public key"),
        ("agentmail", "secret = \"whsec_c2VjcmV0IQ\"", "with its `=`"),
        ("generic", "secret = \"whsec_\"", "signs nothing"),
        ("gitlab", "secret = \"whsec_a-b_c-d_\"", "signs nothing"),
        ("x", "secret = \"x\"", "provider"),
    ] {
        let said = source(provider, rest).unwrap_err().to_string();
        assert!(said.contains(problem), "{provider}: {said}");
    }
    assert!(source("discord", &format!("secret = \"{}\"", "0a".repeat(32))).is_ok());
    assert!(source("gitlab", "secret = \"x\"").is_ok());
    for provider in ["agentmail", "generic", "gitlab"] {
        assert!(source(provider, "secret = \"whsec_c2VjcmV0IQ==\"").is_ok(), "{provider}");
    }
    let domains = "secret = \"c2VjcmV0\"\nsender_domains = [\"example.org\"]";
    assert!(source("agentmail", domains).is_ok());
    assert!(source("gitlab", domains).unwrap_err().to_string().contains("take its domains out"));
    assert!(source("gitlab", "secret = \"x\"\nbot = \"skein\"\nallowed_users = [\"ada\"]").is_ok());
    for (provider, rest, problem) in [
        ("linear", "bot = \"skein\"", "nobody asks its `bot`"),
        ("github", "bot = \"@skein\"", "without @"),
        ("github", "bot = \"skein[bot]\"", "without @ and [bot]"),
        ("github", "bot = \"\"", "without @"),
        ("github", "bot = \"skein\"\nallowed_users = [\"@ada\"]", "without @"),
        ("github", "allowed_users = [\"ada\"]", "no `bot`"),
    ] {
        let said = source(provider, &format!("secret = \"x\"\n{rest}")).unwrap_err().to_string();
        assert!(said.contains(problem), "{provider} {rest}: {said}");
    }
    let open = source("github", "allow_unsigned = true\nbot = \"skein\"").unwrap_err().to_string();
    assert!(open.contains("anybody could ask"), "{open}");
}

#[test]
fn an_issuer_has_one_section() {
    let issuer = |name: &str, audience: &str| {
        format!(
            "[[auth.issuer]]\nissuer = \"https://{name}.example\"\naudience = \"{audience}\"\n\
             swarm = \"default\"\nrole = \"worker\"\n"
        )
    };
    let two = read(&(issuer("one", "skein") + &issuer("two", "skein"))).unwrap();
    assert_eq!(two.auth.issuer.len(), 2);
    let twice = read(&(issuer("one", "skein") + &issuer("one", "other"))).unwrap_err().to_string();
    assert!(twice.contains("`https://one.example`: it is there twice"), "{twice}");
}

#[test]
fn a_workspace_needs_its_tokens_where_they_belong_and_never_shows_them() {
    let workspace = |text: &str| read(&format!("[[slack.workspace]]\n{text}"));
    let config = workspace("bot_token = \"xoxb-hush\"\napp_token_file = \"hook.key\"").unwrap();
    let [found] = config.slack.workspace.as_slice() else { panic!("one workspace") };
    assert_eq!((found.swarm.as_str(), found.api.as_str()), ("default", "https://slack.com/api/"));
    assert_eq!(found.app_token.as_ref().unwrap().expose_secret(), "from-file");
    assert!(!format!("{config:?}").contains("hush"));
    let local = workspace("bot_token = \"xoxb-hush\"\napi = \"http://127.0.0.1:9/api\"").unwrap();
    assert_eq!(local.slack.workspace[0].api.as_str(), "http://127.0.0.1:9/api/");
    for (text, problem) in [
        ("swarm = \"a\"", "has no bot token"),
        ("bot_token = \"xapp-hush\"", "mixed up"),
        ("bot_token = \"xoxb-hush\"\napp_token = \"xoxb-hush\"", "mixed up"),
        ("bot_token = \"xoxb-hush\"\nbot_token_file = \"hook.key\"", "keep one"),
        ("bot_token_file = \"nowhere\"", "cannot be read"),
        ("bot_token = \"xoxb-hush\"\napi = \"http://slack.example/api/\"", "plain text"),
        ("bot_token = \"xoxb-hush\"\n[[slack.workspace]]\nbot_token = \"xoxb-hush\"", "has two"),
        ("bot_token = 4242", "in quotes"),
    ] {
        let said = workspace(text).unwrap_err().to_string();
        assert!(said.contains(problem) && !said.contains("hush") && !said.contains("4242"), "{text}: {said}");
    }
}

#[test]
fn subscriptions_have_words_for_every_provider() {
    let knows = |source: &str, word: &str| {
        let fields = serde_json::json!({"source": source, word: "x"});
        subscription(fields.as_object().unwrap()).is_ok()
    };
    let all = |source: &str| ["guilds", "resources"].iter().all(|word| knows(source, word));
    // A source of any name may be of any provider, so its subscriptions have the words of all.
    assert!(all("door"));
    for provider in Provider::ALL {
        assert!(!all(provider.as_str()), "{} has no words of its own", provider.as_str());
    }
}

#[test]
fn a_mistake_in_the_file_is_told_without_the_line_that_it_is_on() {
    for line in [
        "redis = \"redis://skein:hush\\shush@box\"",
        "redis = \"redis://skein:hush@box",
        "redis = redis://skein:hush@box",
    ] {
        let said = read(&format!("[store]\n{line}\n")).unwrap_err().to_string();
        assert!(said.contains("config.toml: line 2, column "), "{said}");
        assert!(!said.contains("hush") && !said.contains("``"), "{said}");
    }
}

#[test]
fn what_was_found_in_place_of_a_setting_is_not_told() {
    for (text, place) in [
        ("[slack]\nworkspace = '[{bot_token=\"xoxb-hush\"}'", "`slack.workspace`"),
        ("[ingress]\nsource = '[{name=\"hub\", secret=\"hush\"}'", "`ingress.source`"),
        ("[listen]\nhttp = \"hush\"", "`listen.http`"),
        ("[limits]\ndrain = \"hush\"", "`limits.drain`"),
        ("[store]\ndurability = \"hush\"", "`store.durability`"),
        ("[embeddings]\nmodel = \"m\"\nurl = \"//me:hush@x\"", "`embeddings.url`"),
    ] {
        let said = read(text).unwrap_err().to_string();
        assert!(said.contains(place) && !said.contains("hush"), "{said}");
    }
}

#[test]
fn the_url_of_redis_is_a_secret() {
    let config = read("[store]\nredis = \"redis://me:hush-hush@box\"\ndurability = \"everysec\"").unwrap();
    assert_eq!(config.store.redis.as_ref().unwrap().expose_secret(), "redis://me:hush-hush@box");
    assert_eq!(config.store.durability, Durability::Everysec);
    assert!(!format!("{config:?}").contains("hush-hush"));
    for wrong in ["foo", "http://me:hush-hush@box", "redis-sentinel://me:hush-hush@box"] {
        let said = read(&format!("[store]\nredis = \"{wrong}\"")).unwrap_err().to_string();
        assert!(said.contains("`store.redis` (--redis)") && said.contains("write redis"), "{said}");
        assert!(!said.contains("hush-hush"), "{said}");
    }
    // Certificates are read where they are needed.
    read("[store]\nredis = \"rediss://box\"\nredis_ca = \"gone.pem\"").unwrap();
    let number = read("[store]\nredis = 4242").unwrap_err().to_string();
    assert!(number.contains("store.redis") && !number.contains("4242"), "{number}");
    let unknown = read("[store]\ndurability = \"sometimes\"").unwrap_err().to_string();
    assert!(unknown.contains("everysec"), "{unknown}");
}

#[test]
fn an_endpoint_for_embeddings_needs_a_model_and_never_shows_its_key() {
    let endpoint =
        |text: &str| read(&format!("[embeddings]\n{text}")).map(|config| config.embeddings.unwrap());
    assert!(read("").unwrap().embeddings.is_none());
    let there = "url = \"https://api.example/v1\"\nmodel = \"small\"\n";
    let found = endpoint(&format!("{there}dimensions = 512\napi_key = \"hush-hush\"")).unwrap();
    assert_eq!((found.url.as_str(), found.dimensions), ("https://api.example/v1/", Some(512)));
    assert!(!format!("{found:?}").contains("hush-hush"));
    let found = endpoint(&format!("{there}api_key_file = \"hook.key\"")).unwrap();
    assert_eq!(found.api_key.unwrap().expose_secret(), "from-file");
    let near = "model = \"m\"\nurl = \"http://ollama:11434/v1\"\n";
    assert!(endpoint(near).is_ok(), "without a key there is nothing to keep");
    for (text, problem) in [
        ("model = \"m\"".to_owned(), "url"),
        ("url = \"https://x/\"".to_owned(), "model"),
        ("url = \"https://x/\"\nmodel = \" \"".to_owned(), "no model"),
        ("url = \"ftp://x/\"\nmodel = \"m\"".to_owned(), "begins with https"),
        (format!("{there}dimensions = 0"), "between 1 and 4096"),
        (format!("{there}dimensions = 5000"), "between 1 and 4096"),
        (format!("{near}api_key = \"x\""), "plain text"),
        (format!("{there}api_key = \"x\"\napi_key_file = \"hook.key\""), "keep one"),
    ] {
        let said = endpoint(&text).unwrap_err().to_string();
        assert!(said.contains(problem), "{text}: {said}");
    }
    let number = endpoint(&format!("{there}api_key = 4242")).unwrap_err().to_string();
    assert!(!number.contains("4242"), "{number}");
}

#[test]
fn folders_lie_beside_the_file_that_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let runner = "[runner]\nagents = \"our/agents\"\nwork = \"/srv/work\"";
    std::fs::write(&file, format!("[cluster]\ntls = \"certificates\"\n{runner}")).unwrap();
    let config = load(&file, &Overrides::default()).unwrap();
    let beside = |name| Some(folder.path().join(name));
    assert_eq!(config.cluster.tls, beside("certificates"));
    assert_eq!(config.runner.agents, beside("our/agents"));
    assert_eq!(config.runner.work, Some("/srv/work".into()));
    let here = Overrides { tls: Some("here".into()), ..Overrides::default() };
    let config = load(&file, &here).unwrap();
    assert_eq!(config.cluster.tls.unwrap(), std::env::current_dir().unwrap().join("here"));
}

#[test]
fn a_certificate_for_redis_comes_with_its_key_and_lies_beside_the_file_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let names = "[store]\nredis_ca = \"ca.pem\"\nredis_certificate = \"us.pem\"\nredis_key = \"us.key\"";
    std::fs::write(&file, names).unwrap();
    let tls = load(&file, &Overrides::default()).unwrap().store.tls();
    let beside = |name| folder.path().join(name);
    assert_eq!(
        (tls.ca, tls.certificate),
        (Some(beside("ca.pem")), Some((beside("us.pem"), beside("us.key"))))
    );
    let alone = read("[store]\nredis_certificate = \"us.pem\"").unwrap_err().to_string();
    assert!(alone.contains("store.redis_key"), "{alone}");
}
