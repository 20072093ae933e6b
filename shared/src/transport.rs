//! The transport tools: what they are called, how long they may take, and what comes of them. How they work is the
//! runner's affair, for they run inside its instances alone.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::code::{Code, Refusal};

/// How long a command may run if nothing is said.
pub const USUAL: Duration = Duration::from_secs(300);
/// Longest that a command may run.
pub const LONGEST: Duration = Duration::from_secs(3600);
/// How long a tool may run that is no command: a slow disk, or a large folder.
pub const QUICK: Duration = Duration::from_secs(120);
/// Longest answer, bytes: an image that is shown, in base64, and some more.
pub const ANSWER: usize = 6 * 1024 * 1024;

/// Most bytes of one part of a file that goes into an instance or comes out of one.
pub const PART: usize = 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    Bash,
    Read,
    Write,
    Edit,
    Grep,
    Find,
    Ls,
    /// Sets a variable of the commands that follow ([`SetEnv`]).
    SetEnv,
    /// Gives a [`Part`] of a file. Agents are offered neither this nor the next: coordinators carry files by them.
    GetPart,
    /// Takes a part of a file.
    PutPart,
}

/// A variable for the commands that follow in an instance. Without a value it is set no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetEnv {
    pub name: String,
    #[serde(default)]
    pub value: Option<String>,
}

/// Which part of a file is wanted: [`PART`] bytes of it, or what there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetPart {
    pub path: String,
    pub from: u64,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Of the whole file, bytes.
    pub size: u64,
    /// Another one is another content of the file.
    pub version: String,
    /// In base64.
    pub data: String,
}

/// A part of a file that is to be kept. The parts of one transfer come in order, beginning at 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutPart {
    /// Where the whole file goes.
    pub path: String,
    /// Tells transfers apart that go to one place.
    pub transfer: Uuid,
    pub from: u64,
    /// In base64.
    pub data: String,
    pub then: Then,
}

/// What comes after a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// Another one.
    More,
    /// The file is whole, and takes its place.
    Keep,
    /// There will be no whole file: what came of it goes.
    Drop,
}

/// What a tool has to say: its result, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub text: String,
    /// The text is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub mime_type: String,
    /// In base64.
    pub data: String,
}

impl Outcome {
    pub fn said(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub fn failed(text: impl Into<String>) -> Self {
        Self { text: text.into(), failed: true, image: None }
    }
}

/// How long a command may run for which so many seconds were asked.
///
/// # Errors
/// `invalid_argument` for what is no time, or too long a one.
pub fn limit(seconds: Option<f64>) -> Result<Duration, Refusal> {
    let Some(seconds) = seconds else { return Ok(USUAL) };
    let limit = Duration::try_from_secs_f64(seconds).ok();
    limit.filter(|limit| !limit.is_zero() && *limit <= LONGEST).ok_or_else(|| {
        let most = LONGEST.as_secs();
        let problem =
            format!("timeout: {seconds} is no time for a command; give seconds above 0, at most {most}");
        Refusal::new(Code::InvalidArgument, problem)
    })
}
