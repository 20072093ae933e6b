//! `skein runners list`

use clap::Subcommand;
use serde_json::{Value, json};

use super::table::Column;
use super::{CliError, Common, list};

const COLUMNS: &[Column] = &[
    ("NAME", &["runner"]),
    ("STATE", &["state"]),
    ("SLOTS", &["slots"]),
    ("ENGINES", &["engines"]),
    ("LABELS", &["labels"]),
    ("SWARMS", &["swarms"]),
];

#[derive(Debug, Subcommand)]
pub(super) enum Runners {
    /// List them.
    List {
        /// Most rows.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        common: Common,
    },
}

impl Runners {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let Runners::List { limit, common } = self;
        let mut runners = list::beside(&common, "runners", limit).await?;
        if !common.json {
            runners.rows.iter_mut().for_each(for_people);
        }
        list::print(runners, COLUMNS, limit, common.json)
    }
}

/// With a word for the swarms of one that names none, and so serves all: an empty cell would say the opposite.
fn for_people(runner: &mut Value) {
    if runner["swarms"].as_array().is_some_and(Vec::is_empty) {
        runner["swarms"] = json!("any");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_that_names_no_swarms_is_shown_to_serve_any() {
        let shown = |mut runner: Value| {
            for_people(&mut runner);
            runner
        };
        assert_eq!(shown(json!({"runner": "a", "swarms": []})), json!({"runner": "a", "swarms": "any"}));
        let of_some = json!({"runner": "b", "swarms": ["build", "default"]});
        assert_eq!(shown(of_some.clone()), of_some);
    }
}
