//! Puts what was gathered into the templates, which the program carries, as it does the style and the script.

use axum::extract::Path;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::words;

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");
const ICON: &str = include_str!("assets/icon.svg");

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("templates/", $name)))),*]
    };
}

const TEMPLATES: &[(&str, &str)] = templates![
    "agent.html",
    "agents.html",
    "base.html",
    "board.html",
    "calls.html",
    "cluster.html",
    "costs.html",
    "deliveries.html",
    "epic.html",
    "epics.html",
    "fragment.html",
    "graph.html",
    "layout.html",
    "locks.html",
    "login.html",
    "member.html",
    "messages.html",
    "overview.html",
    "parts.html",
    "question.html",
    "questions.html",
    "refused.html",
    "run.html",
    "runs.html",
    "schedules.html",
    "task.html",
    "tasks.html",
    "trends.html",
    "waits.html",
];

/// The templates, compiled.
pub(super) struct Pages {
    templates: Environment<'static>,
}

impl Pages {
    pub(super) fn new() -> Self {
        let mut templates = Environment::new();
        // What agents wrote stands on every page: nothing of it is ever taken for markup.
        templates.set_auto_escape_callback(|_| AutoEscape::Html);
        templates.set_undefined_behavior(UndefinedBehavior::Chainable);
        words::teach(&mut templates);
        templates.add_global("build", format!("{:x}", build()));
        templates.add_global("version", env!("CARGO_PKG_VERSION"));
        for (name, source) in TEMPLATES {
            // A template with a fault is one that a test finds; who asks for it is told.
            if let Err(error) = templates.add_template(name, source) {
                tracing::error!(template = name, %error, "a page of the console is broken");
            }
        }
        Self { templates }
    }

    /// What a template makes of what is shown.
    pub(super) fn render(&self, template: &str, shown: &Value) -> Result<String, minijinja::Error> {
        self.templates.get_template(template)?.render(minijinja::Value::from(Serde(shown)))
    }

    pub(super) fn answer(&self, status: StatusCode, template: &str, shown: &Value) -> Response {
        match self.render(template, shown) {
            Ok(page) => (status, Html(page)).into_response(),
            Err(error) => {
                tracing::error!(template, %error, "a page of the console could not be made");
                let text =
                    "This page could not be made, which is a fault of Skein; its log says more. Report it.\n";
                (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
            }
        }
    }
}

/// Changes with the style and the script, so that a browser never keeps those of an older program.
fn build() -> u64 {
    xxh3_64(format!("{STYLE}{SCRIPT}{ICON}").as_bytes())
}

pub(super) async fn asset(Path(file): Path<String>) -> Response {
    let (kind, text) = match file.as_str() {
        "console.css" => ("text/css; charset=utf-8", STYLE),
        "console.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "icon.svg" => ("image/svg+xml", ICON),
        _ => return (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    };
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_compiles() {
        let pages = Pages::new();
        for (name, source) in TEMPLATES {
            assert!(pages.templates.get_template(name).is_ok(), "{name}");
            for banned in
                ["|safe", "| safe", "style=\"", "onclick", "<style", "javascript:", "http://", "https://"]
            {
                assert!(!source.contains(banned), "{name} has {banned}");
            }
        }
    }
}
