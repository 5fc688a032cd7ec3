//! The model as text in HAProxy's own language.
//!
//! Layout is the template's business. What comes from documents passes the filters `quote` and `comment`, so no
//! value can end a line or add a directive.

use super::keeper::Files;
use super::model::{Model, hex};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value};
use serde::Serialize;
use sha1::{Digest, Sha1};
use std::io::{self, Write};

/// The template of the text, in the language of `minijinja`.
pub const TEMPLATE: &str = include_str!("haproxy.cfg.jinja");

/// The longest line about a request, so that the system takes it in one piece; the rest of a longer one is cut off.
const LINE_BYTES_MAX: usize = 4000;

/// How many steps a template of somebody else may take, and how much text it may make, so that none ends the service.
/// A test says that ours takes far fewer for thousands of routes.
const STEPS_MAX: u64 = 20_000_000;
const TEXT_BYTES_MAX: usize = 64 << 20;

/// What the text holds beside the model.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Base {
    pub(super) hard_stop_after_seconds: u64,
    pub(super) stats_port: Option<u16>,
    pub(super) stats_bind: String,
}

/// A configuration, and the name of the part of it that cannot change at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rendered {
    pub(super) files: Files,
    /// Also found in the text, and told by an HAProxy that runs with it.
    pub(super) structure: String,
}

/// Renders `model` by `template`, or by [`TEMPLATE`] when there is none. The error says what is wrong with the template.
pub(super) fn render(
    model: &Model,
    base: &Base,
    template: Option<&str>,
) -> Result<Rendered, String> {
    let unusable = |words| format!("the template of the configuration cannot be used: {words}");
    let fixed = text(&model.structure(), base, "", template).map_err(unusable)?;
    let structure = hex(&Sha1::digest(fixed.as_bytes()));
    let maps = model.tables().map(|table| (table.file.clone(), table.text())).collect();
    let text = text(model, base, &structure, template).map_err(unusable)?;
    if !text.contains(&structure) {
        let words = "it leaves out 'structure', by which the file is known again";
        return Err(unusable(words.to_owned()));
    }
    Ok(Rendered { files: Files { text, maps }, structure })
}

fn text(
    model: &Model,
    base: &Base,
    structure: &str,
    template: Option<&str>,
) -> Result<String, String> {
    #[derive(Serialize)]
    struct Context<'a> {
        #[serde(flatten)]
        base: &'a Base,
        model: &'a Model,
        structure: &'a str,
        line_bytes_max: usize,
    }
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.add_filter("quote", |text: &str| quote(text));
    environment.add_filter("comment", |text: &str| comment(text));
    if template.is_some() {
        environment.set_fuel(Some(STEPS_MAX));
    }
    let context = Context { base, model, structure, line_bytes_max: LINE_BYTES_MAX };
    let bytes_max = template.map_or(usize::MAX, |_| TEXT_BYTES_MAX);
    let mut text = Bounded { bytes: Vec::new(), bytes_max };
    environment
        .template_from_named_str("template", template.unwrap_or(TEMPLATE))
        .and_then(|template| {
            template.render_captured_to(Value::from(Serde(context)), &mut text).map(drop)
        })
        .map_err(|error| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        })?;
    String::from_utf8(text.bytes).map_err(|error| error.to_string())
}

/// Text of a limited size.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            let megabytes = self.bytes_max >> 20;
            return Err(io::Error::other(format!("it makes more than {megabytes} MB of text")));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// In single quotes HAProxy reads everything as it stands; a single quote itself stands outside of them.
pub(super) fn quote(text: &str) -> String {
    let plain = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(c, '.' | '-' | '_' | '/' | ':' | '(' | ')' | ',' | '{' | '}')
    };
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let one_line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("'{}'", one_line.replace('\'', r"'\''"))
}

fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
