//! The work of the demo's workers: measuring one part of a repository with git and a look at its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

/// Files larger than this are data rather than code and are only counted.
const LARGEST_READ: u64 = 2 * 1024 * 1024;
/// Biggest files and busiest files that a survey names.
const NAMED: usize = 5;
/// How far back recent churn reaches.
const RECENT: &str = "90 days ago";

/// What a worker found out about one part of the tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Survey {
    pub(super) part: String,
    pub(super) files: usize,
    pub(super) lines: usize,
    pub(super) bytes: u64,
    /// Lines by file extension.
    pub(super) by_extension: BTreeMap<String, usize>,
    /// `path:line` of every marker left in the text.
    pub(super) markers: Vec<String>,
    /// The biggest files with their lines.
    pub(super) biggest: Vec<(String, usize)>,
    /// Files by the number of recent commits that touched them.
    pub(super) churn: Vec<(String, usize)>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SurveyError {
    #[error("git could not be run: {0}")]
    Git(#[from] std::io::Error),
    #[error("git {arguments} failed: {message}")]
    Failed { arguments: String, message: String },
}

/// The parts of a repository: each top folder, and `.` for the files beside them. Biggest first.
pub(super) fn parts(repository: &Path) -> Result<Vec<(String, usize)>, SurveyError> {
    let mut parts: BTreeMap<String, usize> = BTreeMap::new();
    for file in tracked(repository, ".")? {
        let part = file.split_once('/').map_or(".", |(folder, _)| folder);
        *parts.entry(part.to_owned()).or_default() += 1;
    }
    let mut parts: Vec<_> = parts.into_iter().collect();
    parts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Ok(parts)
}

/// Measures one part.
pub(super) fn survey(repository: &Path, part: &str) -> Result<Survey, SurveyError> {
    let mut survey = Survey { part: part.to_owned(), ..Survey::default() };
    for file in files_of(repository, part)? {
        measure(repository, &file, &mut survey);
    }
    survey.biggest.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    survey.biggest.truncate(NAMED);
    survey.churn = churn(repository, part)?;
    Ok(survey)
}

fn measure(repository: &Path, file: &str, survey: &mut Survey) {
    let path: PathBuf = repository.join(file);
    let Ok(metadata) = std::fs::symlink_metadata(&path) else { return };
    if !metadata.is_file() {
        return;
    }
    survey.files += 1;
    survey.bytes += metadata.len();
    if metadata.len() > LARGEST_READ {
        return;
    }
    // A file that is not text has no lines to count.
    let Ok(text) = std::fs::read_to_string(&path) else { return };
    let mut lines = 0;
    for (index, line) in text.lines().enumerate() {
        lines += 1;
        if has_marker(line) {
            survey.markers.push(format!("{file}:{}", index + 1));
        }
    }
    let extension = Path::new(file).extension().and_then(|e| e.to_str()).unwrap_or("none").to_owned();
    survey.lines += lines;
    *survey.by_extension.entry(extension).or_default() += lines;
    survey.biggest.push((file.to_owned(), lines));
}

/// The words that people leave behind for later, spelled so that this file does not find itself.
fn has_marker(line: &str) -> bool {
    const MARKERS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
    MARKERS.iter().any(|marker| {
        line.match_indices(marker).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + marker.len()..].chars().next();
            let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            !word(before) && !word(after)
        })
    })
}

fn churn(repository: &Path, part: &str) -> Result<Vec<(String, usize)>, SurveyError> {
    let since = format!("--since={RECENT}");
    let log = git(repository, &["log", &since, "--format=", "--name-only", "--", part])?;
    let mut touched: BTreeMap<&str, usize> = BTreeMap::new();
    for file in log.lines().filter(|line| !line.is_empty() && belongs(line, part)) {
        *touched.entry(file).or_default() += 1;
    }
    let mut churn: Vec<_> = touched.into_iter().map(|(file, commits)| (file.to_owned(), commits)).collect();
    churn.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    churn.truncate(NAMED);
    Ok(churn)
}

fn files_of(repository: &Path, part: &str) -> Result<Vec<String>, SurveyError> {
    let files = tracked(repository, part)?;
    Ok(files.into_iter().filter(|file| belongs(file, part)).collect())
}

/// `.` stands for the files beside the top folders, not for everything.
fn belongs(file: &str, part: &str) -> bool {
    part != "." || !file.contains('/')
}

fn tracked(repository: &Path, part: &str) -> Result<Vec<String>, SurveyError> {
    let listed = git(repository, &["ls-files", "-z", "--", part])?;
    Ok(listed.split('\0').filter(|file| !file.is_empty()).map(str::to_owned).collect())
}

/// Runs git. Agents may run as another user than the one who owns the repository, hence `safe.directory`.
fn git(repository: &Path, arguments: &[&str]) -> Result<String, SurveyError> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "-C"])
        .arg(repository)
        .args(arguments)
        .output()?;
    if !output.status.success() {
        return Err(SurveyError::Failed {
            arguments: arguments.join(" "),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_whole_words() {
        assert!(has_marker(concat!("// TO", "DO: mend this")));
        assert!(has_marker(concat!("FIX", "ME")));
        assert!(!has_marker(concat!("MASTO", "DON")));
        assert!(!has_marker(concat!("TO", "DO_LIST")));
    }

    #[test]
    fn a_repository_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("src")).unwrap();
        std::fs::write(root.join("src/a.rs"), concat!("fn a() {}\n// TO", "DO: more\n")).unwrap();
        std::fs::write(root.join("README.md"), "one\n").unwrap();
        git(root, &["init", "-q"]).unwrap();
        git(root, &["add", "."]).unwrap();
        git(root, &["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "first"])
            .unwrap();

        assert_eq!(parts(root).unwrap(), vec![(".".to_owned(), 1), ("src".to_owned(), 1)]);
        let found = survey(root, "src").unwrap();
        assert_eq!((found.files, found.lines), (1, 2));
        assert_eq!(found.markers, vec!["src/a.rs:2"]);
        assert_eq!(found.churn, vec![("src/a.rs".to_owned(), 1)]);
        assert_eq!(survey(root, ".").unwrap().biggest, vec![("README.md".to_owned(), 1)]);
    }
}
