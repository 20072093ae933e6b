//! Lists of tasks with long texts: of each text they show the beginning, and the task by itself shows all of it.

use serde_json::Value;
use skein_shared::text::excerpt;

/// Up to so many bytes of texts a list has them whole.
const WHOLE: usize = 64 * 1024;
/// So many characters of each text are in a longer list: of the most tasks that a list shows this is about as much.
const SHOWN: usize = 240;
/// What may be long in a task.
const TEXTS: [&str; 4] = ["task", "progress", "output", "rejectionReason"];
const WARNING: &str = "cut: these texts are long together, so each shows its beginning alone; get-task-details \
                       shows one task whole";

/// Cuts the texts of tasks that are too long together for one answer, and gives what is then to be said of them.
pub fn shorten(tasks: &mut [Value]) -> Option<&'static str> {
    let texts = tasks.iter().flat_map(|task| TEXTS.into_iter().filter_map(move |name| task[name].as_str()));
    if texts.map(str::len).sum::<usize>() <= WHOLE {
        return None;
    }
    for task in tasks {
        for name in TEXTS {
            if let Some(Value::String(text)) = task.get_mut(name) {
                *text = excerpt(text, SHOWN);
            }
        }
    }
    Some(WARNING)
}
