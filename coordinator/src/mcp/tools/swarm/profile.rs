//! What an agent says of itself.

use serde::Deserialize;
use serde_json::json;
use skein_shared::pool::Profile;
use skein_shared::{Code, Refusal};

use super::done;
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::schema::{Args, any_text, flag, list, object, text};

/// Longest text of a profile, characters (spec: Agent Swarm, shape Agent).
const TEXT: usize = 65_536;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("update-profile", "Update your profile", Toolset::Swarm, update)
            .writes(Right::Work)
            .idempotent()
            .about(
                "Change your own name, role, capabilities or standing texts.",
                "What is left out stays; an empty text overwrites. Your name must be unique in the swarm. The texts are kept and shown; agents of runners go by their definitions instead.",
            )
            .found_by("edit identity soul claude md tools setup script description rename self")
            .args(
                Args::none()
                    .take("name", text(200), "A new name")
                    .take("description", any_text(4000), "What you are for")
                    .take("role", any_text(100), "Your role in a word or two")
                    .take("capabilities", list(text(100), 100), "What you are able to do")
                    .take("claudeMd", any_text(TEXT), "Your standing instructions")
                    .take("soulMd", any_text(TEXT), "Your manner")
                    .take("identityMd", any_text(TEXT), "Who you are")
                    .take("setupScript", any_text(TEXT), "A start-up script: Agent Swarm's own worker runs it, Skein's runners do not")
                    .take("toolsMd", any_text(TEXT), "How you use your tools"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "agent": object() })),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update {
    name: Option<String>,
    description: Option<String>,
    role: Option<String>,
    capabilities: Option<Vec<String>>,
    claude_md: Option<String>,
    soul_md: Option<String>,
    identity_md: Option<String>,
    setup_script: Option<String>,
    tools_md: Option<String>,
}

async fn update(call: Call, args: Update) -> Outcome {
    let fields = [
        ("name", args.name.is_some()),
        ("description", args.description.is_some()),
        ("role", args.role.is_some()),
        ("capabilities", args.capabilities.is_some()),
        ("claudeMd", args.claude_md.is_some()),
        ("soulMd", args.soul_md.is_some()),
        ("identityMd", args.identity_md.is_some()),
        ("setupScript", args.setup_script.is_some()),
        ("toolsMd", args.tools_md.is_some()),
    ];
    let changed: Vec<&str> = fields.iter().filter(|(_, given)| *given).map(|(field, _)| *field).collect();
    if changed.is_empty() {
        return Err(Refusal::new(Code::InvalidArgument, "nothing to change: give at least one field"));
    }
    let profile = Profile {
        name: args.name,
        description: args.description,
        role: args.role,
        capabilities: args.capabilities,
        claude_md: args.claude_md,
        soul_md: args.soul_md,
        identity_md: args.identity_md,
        setup_script: args.setup_script,
        tools_md: args.tools_md,
    };
    let agent = call.service.describe(&call.who, call.request, profile).await?;
    Ok(done(format!("Your profile is changed: {}.", changed.join(", ")), facts!({ "agent": agent })))
}
