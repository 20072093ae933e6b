//! `SKILL.md`: instructions for the agent below a few lines about them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::keys;

/// Longest instructions, bytes. They travel in one argument or variable of a program, which the kernel bounds.
const LONGEST: usize = 100 * 1024;
const FENCE: &str = "---";
/// What the format of skills has for people and for other programs.
const ABOUT: [&str; 6] = ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// What `SKILL.md` says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Skill {
    /// Settings that stand above the text, where Action Llama once kept them.
    pub(super) settings: toml::Table,
    pub(super) instructions: String,
}

impl Skill {
    /// # Errors
    /// When the lines above the text are no YAML or have a key that nobody knows, or when the text is too long.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
        let (front, body) = split(&text)?;
        let instructions = body.trim().to_owned();
        fits(&instructions)?;
        Ok(Self { settings: settings(front)?, instructions })
    }
}

/// Refuses instructions that are too long.
pub(super) fn fits(instructions: &str) -> Result<(), String> {
    if instructions.contains('\0') {
        return Err("the instructions hold a zero byte, which no variable can; remove it".to_owned());
    }
    if instructions.len() > LONGEST {
        return Err(format!(
            "the instructions are longer than {LONGEST} bytes; move parts into files that the agent reads when it needs them"
        ));
    }
    Ok(())
}

/// What stands between the first two lines of dashes, and what comes below. Spaces behind the dashes are not seen.
fn split(text: &str) -> Result<(&str, &str), String> {
    let Some((first, rest)) = text.split_once('\n') else { return Ok(("", text)) };
    if first.trim_end() != FENCE {
        return Ok(("", text));
    }
    let mut begin = 0;
    for line in rest.split_inclusive('\n') {
        let end = begin + line.len();
        if line.trim_end() == FENCE {
            return Ok((&rest[..begin], &rest[end..]));
        }
        begin = end;
    }
    Err("the lines at the top have no end; close them with a line of `---`".to_owned())
}

fn settings(front: &str) -> Result<toml::Table, String> {
    if front.trim().is_empty() {
        return Ok(toml::Table::new());
    }
    let Front(written) = serde_saphyr::from_str(front)
        .map_err(|error| format!("the lines at the top are no YAML of keys and values: {error}"))?;
    // A key without a value says nothing.
    let mut table: toml::Table = written.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    table.retain(|key, _| !ABOUT.contains(&key) || keys::is_known(key));
    Ok(table)
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Front(BTreeMap<String, Option<toml::Value>>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_and_the_lines_above_it_are_told_apart() {
        let skill = Skill::parse("---\r\nname: dev\r\nscale: 2\r\n---\r\n# Work\r\n---\r\nmore\r\n").unwrap();
        assert_eq!(skill.instructions, "# Work\n---\nmore");
        assert_eq!(skill.settings.keys().collect::<Vec<_>>(), ["scale"]);
        let skill = Skill::parse("---\nname: dev\nlicense:\nschedule: ~\nscale: 2\n---\nWork.").unwrap();
        assert_eq!(skill.settings.keys().collect::<Vec<_>>(), ["scale"], "what has no value is left out");
        let spaced = Skill::parse("--- \nscale: 2\n---  \nWork.").unwrap();
        assert_eq!((spaced.settings.len(), spaced.instructions.as_str()), (1, "Work."));
        assert_eq!(Skill::parse("no lines").unwrap().instructions, "no lines");
        assert_eq!(Skill::parse("---\n---\ntext").unwrap().instructions, "text");
        assert_eq!(Skill::parse("").unwrap(), Skill::default());
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(Skill::parse("---\nname: dev\ntext").unwrap_err().contains("have no end"));
        assert!(Skill::parse("---\n- a\n- b\n---\n").unwrap_err().contains("keys and values"));
        assert!(Skill::parse(&"x".repeat(LONGEST + 1)).unwrap_err().contains("longer"));
    }
}
