//! The transport tools: an agent's hands in its own instance. What they do is done there, by its runner; nothing of it
//! ever runs here.

use serde_json::{Map, Value, json};
use skein_shared::limits;
use skein_shared::transport::{self, Tool as Named};

use crate::auth::Right;
use crate::mcp::catalogue::{Call, Tool, Toolset};
use crate::mcp::result::Reply;
use crate::mcp::schema::{Args, any_text, flag, integer, list, text};

const PATH: &str = "Absolute, or relative to the work folder";
const SCHEDULER: Toolset = Toolset::Scheduler;
const MOST: i64 = 1_000_000;

pub(super) fn tools() -> Vec<Tool> {
    [changing(), reading()].into_iter().flatten().collect()
}

fn changing() -> Vec<Tool> {
    let seconds = json!({ "type": "number", "exclusiveMinimum": 0, "maximum": transport::LONGEST.as_secs() });
    let edit = json!({
        "type": "object",
        "properties": { "oldText": text(limits::FILE), "newText": any_text(limits::FILE) },
        "required": ["oldText", "newText"],
        "additionalProperties": false,
    });
    vec![
        Tool::raw("bash", "Run a command", SCHEDULER, |call, arguments| run(call, Named::Bash, arguments))
            .writes(Right::Read)
            .destructive()
            .text_alone()
            .about(
                "Run a shell command in the work folder of your instance.",
                "The last 2000 lines or 50 KB are shown, and longer output is kept in a file that is named. An exit code other than 0 is an error. What runs in the background stays until your instance ends.",
            )
            .found_by("shell execute terminal sh program process script")
            .args(
                Args::none()
                    .need("command", text(limits::TEXT), "The command")
                    .take("timeout", seconds, "Seconds that it may run (300)")
                    .rare("instance", text(200), "For operators: which instance"),
            ),
        Tool::raw("set_env", "Set a variable", SCHEDULER, |call, arguments| run(call, Named::SetEnv, arguments))
            .writes(Right::Read)
            .idempotent()
            .text_alone()
            .about(
                "Set an environment variable for the bash commands that follow in your instance.",
                "Gone after wait_for_trigger. Without a value it is set no more.",
            )
            .found_by("export environment variable env setenv shell")
            .args(
                Args::none()
                    .need("name", text(200), "Such as PYTHONPATH")
                    .take("value", any_text(65_536), "Its value")
                    .rare("instance", text(200), "For operators: which instance"),
            ),
        Tool::raw("write", "Write a file", SCHEDULER, |call, arguments| run(call, Named::Write, arguments))
            .writes(Right::Read)
            .destructive()
            .text_alone()
            .about("Write a whole file in your instance.", "It makes the folders above, and replaces what is there.")
            .found_by("create file save overwrite content disk")
            .args(
                of_file()
                    .need("content", any_text(limits::FILE), "What the file is to hold")
                    .rare("instance", text(200), "For operators: which instance"),
            ),
        Tool::raw("edit", "Edit a file", SCHEDULER, |call, arguments| run(call, Named::Edit, arguments))
            .writes(Right::Read)
            .destructive()
            .text_alone()
            .about(
                "Replace exact texts in a file of your instance.",
                "Each oldText has to be there exactly once, and no two may overlap; all are matched against the file as it was. The answer is a diff.",
            )
            .found_by("replace change modify patch file text disk")
            .args(
                of_file()
                    .take("edits", list(edit, 1000), "The replacements")
                    .rare("oldText", text(limits::FILE), "Of a single replacement")
                    .rare("newText", any_text(limits::FILE), "Of a single replacement")
                    .rare("instance", text(200), "For operators: which instance"),
            ),
    ]
}

fn reading() -> Vec<Tool> {
    vec![
        Tool::raw("read", "Read a file", SCHEDULER, |call, arguments| run(call, Named::Read, arguments))
            .reads()
            .text_alone()
            .about(
                "Read a text file or an image in your instance.",
                "At most 2000 lines or 50 KB at once; a note says with which offset to go on.",
            )
            .found_by("cat open view show file image content disk")
            .args(
                of_file()
                    .take("offset", integer(1, MOST * 1000), "The first line, from 1")
                    .take("limit", integer(1, MOST), "How many lines")
                    .rare("instance", text(200), "For operators: which instance"),
            ),
        Tool::raw("grep", "Search in files", SCHEDULER, |call, arguments| run(call, Named::Grep, arguments))
            .reads()
            .text_alone()
            .about(
                "Find lines in the files of your instance by a pattern.",
                "Ignore files are respected. Lines are cut at 500 characters, and the answer at 50 KB.",
            )
            .found_by("search regex ripgrep lines text pattern files")
            .args(
                Args::none()
                    .need("pattern", text(limits::TEXT), "A regular expression")
                    .take("path", any_text(4096), "File or folder to search (the work folder)")
                    .take("glob", text(1000), "Only files such as *.rs or src/**/*.ts")
                    .take("ignoreCase", flag(), "Whether case does not matter")
                    .take("literal", flag(), "Take the pattern as plain text")
                    .take("context", integer(0, 100), "Lines to show around each match")
                    .take("limit", integer(1, MOST), "Most matches (100)")
                    .rare("instance", text(200), "For operators: which instance"),
            ),
        Tool::raw("find", "Find files", SCHEDULER, |call, arguments| run(call, Named::Find, arguments))
            .reads()
            .text_alone()
            .about("Find files and folders of your instance by a glob.", "Ignore files are respected.")
            .found_by("search file names glob locate path folder")
            .args(
                Args::none()
                    .need("pattern", text(1000), "A glob such as *.rs or src/**/*.ts")
                    .take("path", any_text(4096), "Folder to search (the work folder)")
                    .take("limit", integer(1, MOST), "Most results (1000)")
                    .rare("instance", text(200), "For operators: which instance"),
            ),
        Tool::raw("ls", "List a folder", SCHEDULER, |call, arguments| run(call, Named::Ls, arguments))
            .reads()
            .text_alone()
            .about(
                "List a folder of your instance.",
                "Sorted, hidden ones included; folders end with a slash.",
            )
            .found_by("list directory folder entries dir files")
            .args(
                Args::none()
                    .take("path", any_text(4096), "The folder (the work folder)")
                    .take("limit", integer(1, MOST), "Most entries (500)")
                    .rare("instance", text(200), "For operators: which instance"),
            ),
    ]
}

fn of_file() -> Args {
    Args::none().need("path", text(4096), PATH)
}

/// A tool that fails is an error whose text is what it has to say: its output, say, and the exit code.
async fn run(call: Call, tool: Named, mut arguments: Map<String, Value>) -> Reply {
    let named = arguments.remove("instance");
    let named = named.as_ref().and_then(Value::as_str);
    match call.service.use_tool(&call.who, call.request, named, tool, arguments.into()).await {
        Ok(outcome) => Reply::of_tool(outcome),
        Err(refusal) => Reply::error(&refusal),
    }
}
