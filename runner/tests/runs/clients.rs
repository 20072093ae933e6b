//! Agents that are coding agents, played by a shell script that prints what the real one does.

use skein_proto::v1::Usage;
use skein_proto::v1::report::What;

use crate::bed::{Bed, MCP, id, start};
use crate::coordinator::{Coordinator, LEASE, TOKEN};

/// Begins a conversation and works on for ever; in one that goes on it comes to an end.
const CLIENT: &str = r#"echo "{\"type\":\"system\",\"session_id\":\"s-1\"}"
cat > prompt.part; mv prompt.part prompt-$(ls | grep -c prompt); echo "$0 $*" >> arguments
case "$*" in *--resume*) ;; *) exec sleep 1000 ;; esac
echo "{\"type\":\"result\",\"subtype\":\"success\",\"num_turns\":2,\"total_cost_usd\":0.5,\"usage\":{\"input_tokens\":7,\"output_tokens\":3}}""#;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_started_again_goes_on_in_its_conversation_and_says_what_it_took() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let settings = "harness = 'claude-code'\nprompt = 'Count the geese.'\nparams = { pond = 'north' }";
    let mut bed = Bed::with(CLIENT, settings);
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    let arguments = bed.written("arguments").await;
    assert!(arguments.starts_with("-p ") && !arguments.contains("--resume"), "{arguments}");
    let prompt = bed.written("prompt-1").await;
    let config = "<agent-config>\n{\"pond\":\"north\"}\n</agent-config>\n\n# Where you run";
    assert!(prompt.starts_with(&format!("Count the geese.\n\n{config}")), "{prompt:?}");
    assert!(prompt.ends_with("<user-prompt>\nhello\n</user-prompt>\n\n"), "{prompt:?}");

    coordinator.say(start(id(1), 3)).await;
    let ended = |what: &What| matches!(what, What::Exited(exited) if exited.code == Some(0));
    let report = coordinator.reported(id(1), ended).await;
    assert!(bed.written("arguments").await.contains("--resume s-1"));
    let prompt = bed.written("prompt-2").await;
    assert!(prompt.starts_with("Your process was ended and started again."), "{prompt}");
    let Some(What::Exited(exited)) = report.what else { unreachable!("that was waited for") };
    let usage = Usage { input_tokens: 7, output_tokens: 3, turns: 2, cost_micros: Some(500_000) };
    assert_eq!(exited.usage, Some(usage));
    bed.leave().await.unwrap();
}
