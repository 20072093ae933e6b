//! Slack: files for people, and of people.

use serde::Deserialize;
use serde_json::json;
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use super::done;
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Hints, Outcome, Tool, Toolset};
use crate::mcp::schema::{Args, any_text, flag, object, text, uuid};
use crate::service::slack::Address;
use crate::service::slack_files::{Given, Parcel, Wanted};

const SWARM: Toolset = Toolset::Swarm;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("slack-upload-file", "Upload a file to Slack", SWARM, upload)
            .writes(Right::Work)
            .open_world()
            .about(
                "Show people a file in the Slack thread of a task or inbox message.",
                "Give filePath, a file of your instance, or content in base64 with a filename. The lead may name a channel.",
            )
            .found_by("attach send document image picture share human person")
            .args(
                Args::none()
                    .take("filePath", text(4096), "A file of your instance; relative to your work folder")
                    .take("content", text(limits::FILE), "Or its bytes in base64")
                    .take("filename", text(255), "What people see; needed with content")
                    .take("taskId", uuid(), "The task whose thread it is for")
                    .take("inboxMessageId", uuid(), "Or the inbox message")
                    .take("channelId", text(100), "Or a channel, for the lead")
                    .rare("threadTs", text(100), "The thread in the channel")
                    .take("initialComment", any_text(limits::MESSAGE), "What you say with it"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "fileId": any_text(100) })),
        Tool::new("slack-download-file", "Download a file from Slack", SWARM, download)
            .writes(Right::Work)
            // The seed's hint, although a file is written: permissions go by the effect.
            .hinted(Hints { read_only: Some(true), open_world: Some(true), ..Hints::default() })
            .about(
                "Fetch a file that people have put into Slack.",
                "It is kept in your instance; without one the answer has its content in base64.",
            )
            .found_by("attachment get document image picture save human person")
            .args(
                Args::none()
                    .take("fileId", text(100), "The file's id, as slack-read shows it")
                    .take("url", text(2048), "Or its address at Slack")
                    .take("savePath", text(4096), "Where to keep it (downloads/slack/); a folder without a dot")
                    .take("filename", text(255), "What to call it"),
            )
            .output(json!({
                "success": flag(),
                "message": any_text(4000),
                "savedPath": any_text(5000),
                "content": any_text(limits::FILE),
                "fileInfo": object(),
            })),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UploadArgs {
    file_path: Option<String>,
    content: Option<String>,
    filename: Option<String>,
    task_id: Option<Uuid>,
    inbox_message_id: Option<Uuid>,
    channel_id: Option<String>,
    thread_ts: Option<String>,
    initial_comment: Option<String>,
}

async fn upload(call: Call, args: UploadArgs) -> Outcome {
    let address = Address {
        message: args.inbox_message_id,
        task: args.task_id,
        channel: args.channel_id,
        thread: args.thread_ts,
    };
    let file = match (args.file_path, args.content) {
        (Some(_), Some(_)) => {
            let problem = "give either filePath or content, not both";
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        (path, content) => path.map(Given::Path).or(content.map(Given::Content)),
    };
    let parcel = Parcel { file, name: args.filename, comment: args.initial_comment };
    let repeats = call.key.is_some();
    let id = call.service.slack_upload(&call.who, call.request, &address, parcel, repeats).await?;
    Ok(done("The file is in Slack.", json!({ "fileId": id })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DownloadArgs {
    file_id: Option<String>,
    url: Option<String>,
    save_path: Option<String>,
    filename: Option<String>,
}

async fn download(call: Call, args: DownloadArgs) -> Outcome {
    let wanted = Wanted { id: args.file_id, url: args.url, path: args.save_path, name: args.filename };
    let kept = call.service.slack_download(&call.who, wanted).await?;
    let text = match &kept.path {
        Some(path) => format!("The file is at {path}."),
        None => "Here is the file, in base64.".to_owned(),
    };
    Ok(done(text, json!({ "savedPath": kept.path, "content": kept.content, "fileInfo": kept.info })))
}
