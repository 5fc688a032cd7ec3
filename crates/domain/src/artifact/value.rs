//! Value references: `$name`, `$alias.host`, `$alias.group.name`, `$scheme://path` inside texts.
//!
//! This module finds them; what they stand for is known to whoever deploys (documents, section 8).

use std::{collections::BTreeMap, sync::Arc};
use winnow::{
    Parser as _, Result,
    combinator::{alt, delimited, preceded, separated},
    token::take_while,
};

/// A part of a text with value references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePart {
    /// Text that stands for itself.
    Literal(String),
    /// `$name`: a variable of the service or a constant of its breed.
    Local(String),
    /// `$alias.host`.
    Host {
        /// The dependency or cluster.
        alias: String,
    },
    /// `$alias.group.name`.
    Trait {
        /// The dependency or cluster.
        alias: String,
        /// `ports`, `environment_variables`, `constants` or `hosts`; other groups resolve to nothing.
        group: String,
        /// The name within the group.
        name: String,
    },
    /// `$alias.host:$alias.ports.port` with one alias: both are replaced together, by the service address of the
    /// cluster's port, `host:port`.
    Address {
        /// The dependency or cluster.
        alias: String,
        /// The name of the port.
        port: String,
    },
    /// `$scheme://path`.
    Global {
        /// `conf`, `config` or `configuration`; other schemes resolve to nothing.
        scheme: String,
        /// The key, dotted.
        path: String,
    },
}

/// Values of the configuration as references find them. They are handed in; nothing here reads a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigurationValues(Arc<BTreeMap<String, String>>);

impl ConfigurationValues {
    /// Values by dotted key. What is secret is left out by whoever knows that it is.
    pub fn new(values: impl IntoIterator<Item = (String, String)>) -> Self {
        let values = values.into_iter().map(|(key, value)| (Self::key(&key), value));
        Self(Arc::new(values.collect()))
    }

    /// The value at `path`: `-` equals `_`, and `vamp.` or `segue.` before it means nothing.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.0.get(&Self::key(path)).map(String::as_str)
    }

    fn key(path: &str) -> String {
        let bare = path.strip_prefix("vamp.").or_else(|| path.strip_prefix("segue."));
        bare.unwrap_or(path).replace('-', "_")
    }
}

/// A `$` that begins no value reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the '$' at character {} begins no value reference", offset + 1)]
pub struct ValueSyntaxError {
    /// How many characters stand before it.
    pub offset: usize,
}

/// Splits `text` into literals and value references.
pub fn parse(text: &str) -> std::result::Result<Vec<ValuePart>, ValueSyntaxError> {
    split(text, |rest| {
        Err(ValueSyntaxError { offset: text[..text.len() - rest.len()].chars().count() })
    })
}

/// Replaces each value reference of `text` by what `lookup` gives; nothing becomes empty text. A `$` that begins no
/// reference stays, as in dialects.
pub fn interpolate(text: &str, mut lookup: impl FnMut(&ValuePart) -> Option<String>) -> String {
    let parts: std::result::Result<_, std::convert::Infallible> = split(text, |_| Ok(()));
    let Ok(parts) = parts;
    parts
        .iter()
        .map(|part| match part {
            ValuePart::Literal(text) => text.clone(),
            reference => lookup(reference).unwrap_or_default(),
        })
        .collect()
}

/// Splits `text`; `on_stray` is asked about each `$` that begins nothing and gets the text from there on.
fn split<E>(
    text: &str,
    on_stray: impl Fn(&str) -> std::result::Result<(), E>,
) -> std::result::Result<Vec<ValuePart>, E> {
    let mut parts: Vec<ValuePart> = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find('$') {
        literal.push_str(&rest[..begin]);
        rest = &rest[begin..];
        if let Some(after) = rest.strip_prefix("$$") {
            literal.push('$');
            rest = after;
            continue;
        }
        let mut input = rest;
        if let Ok(part) = reference(&mut input) {
            push(&mut parts, &mut literal, part);
            rest = input;
        } else {
            on_stray(rest)?;
            literal.push('$');
            rest = &rest[1..];
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(ValuePart::Literal(literal));
    }
    Ok(parts)
}

/// Adds `part`, after the literal before it; host and port of one alias become an address.
fn push(parts: &mut Vec<ValuePart>, literal: &mut String, part: ValuePart) {
    if let (Some(ValuePart::Host { alias: host }), ":", ValuePart::Trait { alias, group, name }) =
        (parts.last(), literal.as_str(), &part)
        && host == alias
        && group == "ports"
    {
        let address = ValuePart::Address { alias: alias.clone(), port: name.clone() };
        parts.pop();
        parts.push(address);
        literal.clear();
        return;
    }
    if !literal.is_empty() {
        parts.push(ValuePart::Literal(std::mem::take(literal)));
    }
    parts.push(part);
}

fn reference(input: &mut &str) -> Result<ValuePart> {
    preceded('$', alt((delimited(('{', blanks), bare, (blanks, '}')), bare))).parse_next(input)
}

fn bare(input: &mut &str) -> Result<ValuePart> {
    alt((global, group_member, host, local)).parse_next(input)
}

fn global(input: &mut &str) -> Result<ValuePart> {
    let path = separated::<_, _, (), _, _, _, _>(1.., name, '.').take();
    (name, "://", path)
        .map(|(scheme, _, path): (&str, _, &str)| ValuePart::Global {
            scheme: scheme.into(),
            path: path.into(),
        })
        .parse_next(input)
}

fn group_member(input: &mut &str) -> Result<ValuePart> {
    (name, '.', name, '.', name)
        .map(|(alias, _, group, _, name)| ValuePart::Trait {
            alias: alias.to_owned(),
            group: group.to_owned(),
            name: name.to_owned(),
        })
        .parse_next(input)
}

fn host(input: &mut &str) -> Result<ValuePart> {
    (name, ".host").map(|(alias, _)| ValuePart::Host { alias: alias.to_owned() }).parse_next(input)
}

fn local(input: &mut &str) -> Result<ValuePart> {
    name.map(|name| ValuePart::Local(name.to_owned())).parse_next(input)
}

fn name<'i>(input: &mut &'i str) -> Result<&'i str> {
    let is_name = |c: char| {
        !c.is_whitespace()
            && !matches!(c, '/' | '[' | ']' | '.' | '{' | '}' | ':' | ';' | ',' | '$')
    };
    take_while(1.., is_name).parse_next(input)
}

fn blanks<'i>(input: &mut &'i str) -> Result<&'i str> {
    take_while(0.., ' ').parse_next(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[ValuePart]) {
        assert_eq!(parse(text).as_deref(), Ok(expected), "{text}");
    }

    fn literal(text: &str) -> ValuePart {
        ValuePart::Literal(text.to_owned())
    }

    fn local(name: &str) -> ValuePart {
        ValuePart::Local(name.to_owned())
    }

    fn host(alias: &str) -> ValuePart {
        ValuePart::Host { alias: alias.to_owned() }
    }

    fn member(alias: &str, group: &str, name: &str) -> ValuePart {
        ValuePart::Trait { alias: alias.to_owned(), group: group.to_owned(), name: name.to_owned() }
    }

    fn global(scheme: &str, path: &str) -> ValuePart {
        ValuePart::Global { scheme: scheme.to_owned(), path: path.to_owned() }
    }

    #[test]
    fn references() {
        check("", &[]);
        check("plain", &[literal("plain")]);
        check("$$", &[literal("$")]);
        check("a$$b", &[literal("a$b")]);
        check("$$$x", &[literal("$"), local("x")]);
        check("$name", &[local("name")]);
        check("${name}", &[local("name")]);
        check("${  name }", &[local("name")]);
        check("${name}s", &[local("name"), literal("s")]);
        check("$a.host", &[host("a")]);
        check("${a.host}:1", &[host("a"), literal(":1")]);
        check("$a.ports.web", &[member("a", "ports", "web")]);
        check("$conf://a.b-c.d", &[global("conf", "a.b-c.d")]);
        check("${conf://a.b}", &[global("conf", "a.b")]);
        check("x $a y", &[literal("x "), local("a"), literal(" y")]);
        check("$a$b", &[local("a"), local("b")]);
        check("$ü", &[local("ü")]);
    }

    #[test]
    fn matching_is_greedy_and_the_rest_is_literal() {
        check("$a.b.c.d", &[member("a", "b", "c"), literal(".d")]);
        check("$a.foo", &[local("a"), literal(".foo")]);
        check("$a.host.x", &[member("a", "host", "x")]);
        check("$a.hostname", &[host("a"), literal("name")]);
        check("$conf://a.", &[global("conf", "a"), literal(".")]);
        check("$conf:/", &[local("conf"), literal(":/")]);
        check("$a/b", &[local("a"), literal("/b")]);
    }

    #[test]
    fn host_and_port_of_one_alias_are_an_address() {
        let address = ValuePart::Address { alias: "db".to_owned(), port: "sql".to_owned() };
        check("$db.host:$db.ports.sql", std::slice::from_ref(&address));
        check("tcp://${db.host}:${db.ports.sql}/x", &[literal("tcp://"), address, literal("/x")]);
        check("$a.host:$b.ports.p", &[host("a"), literal(":"), member("b", "ports", "p")]);
        check("$a.host::$a.ports.p", &[host("a"), literal("::"), member("a", "ports", "p")]);
        check("$a.host:$a.constants.p", &[host("a"), literal(":"), member("a", "constants", "p")]);
    }

    #[test]
    fn a_stray_dollar_is_refused_with_its_offset() {
        for (text, offset) in [
            ("${a b}", 0),
            ("$ x", 0),
            ("b$", 1),
            ("ü$", 1),
            ("$a ${", 3),
            ("${a.foo}", 0),
            ("$.", 0),
            ("${a.b.c.d}", 0),
        ] {
            assert_eq!(parse(text), Err(ValueSyntaxError { offset }), "{text}");
        }
    }

    #[test]
    fn configuration_is_found_by_any_spelling() {
        let values = ConfigurationValues::new([
            ("gateway_driver.host".to_owned(), "10.0.0.1".to_owned()),
            ("a-b.c".to_owned(), "1".to_owned()),
        ]);
        let check =
            |path: &str, expected: Option<&str>| assert_eq!(values.get(path), expected, "{path}");
        check("gateway_driver.host", Some("10.0.0.1"));
        check("gateway-driver.host", Some("10.0.0.1"));
        check("vamp.gateway-driver.host", Some("10.0.0.1"));
        check("segue.gateway_driver.host", Some("10.0.0.1"));
        check("vamp.segue.gateway_driver.host", None);
        check("a_b.c", Some("1"));
        check("gateway_driver", None);
        check("", None);
    }

    #[test]
    fn interpolation_keeps_what_is_no_reference() {
        let check = |text: &str, expected: &str| {
            let lookup = |part: &ValuePart| match part {
                ValuePart::Local(name) if name == "a" => Some("A".to_owned()),
                ValuePart::Address { alias, port } => Some(format!("{alias}-{port}")),
                _ => None,
            };
            assert_eq!(interpolate(text, lookup), expected, "{text}");
        };
        check("x${a}y", "xAy");
        check("$b/", "/");
        check("$$a", "$a");
        check("$ x ${a b} $", "$ x ${a b} $");
        check("$d.host:$d.ports.p", "d-p");
    }
}
