//! The routing table: which paths and methods the routes make. The web framework keeps its own to itself.

use actix_web::http::Method;
use actix_web::{App, web};
use std::cell::RefCell;

thread_local! {
    /// Where routes are noted while somebody asks for the table.
    static NOTED: RefCell<Option<Vec<Entry>>> = const { RefCell::new(None) };
}

/// A path and the methods that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The path as the router matches it, with patterns in braces.
    pub pattern: String,
    /// The methods.
    pub methods: Vec<Method>,
}

/// What `configure` makes known.
pub fn of(configure: impl FnOnce(&mut web::ServiceConfig)) -> Vec<Entry> {
    NOTED.with_borrow_mut(|noted| *noted = Some(Vec::new()));
    drop(App::new().configure(configure));
    NOTED.with_borrow_mut(Option::take).unwrap_or_default()
}

/// Notes a route, when somebody asks.
pub fn note(pattern: &str, methods: &[Method]) {
    NOTED.with_borrow_mut(|noted| {
        if let Some(noted) = noted {
            noted.push(Entry { pattern: pattern.to_owned(), methods: methods.to_vec() });
        }
    });
}

impl Entry {
    /// The paths that the pattern stands for: a choice between words is as many paths, and other patterns are
    /// parameters, `{name}`.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = vec![String::new()];
        let mut rest = &self.pattern[..];
        while let Some((literal, after)) = rest.split_once('{') {
            let Some((parameter, behind)) = after.split_once('}') else { break };
            let words = match parameter.split_once(':') {
                Some((_, pattern)) if is_choice(pattern) => {
                    pattern.split('|').map(str::to_owned).collect()
                }
                Some((name, _)) => vec![format!("{{{name}}}")],
                None => vec![format!("{{{parameter}}}")],
            };
            paths = paths
                .iter()
                .flat_map(|path| words.iter().map(move |word| format!("{path}{literal}{word}")))
                .collect();
            rest = behind;
        }
        paths.into_iter().map(|path| path + rest).collect()
    }
}

/// Whether a pattern of the router is a choice between words.
fn is_choice(pattern: &str) -> bool {
    pattern.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'|' | b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_paths() {
        let check = |pattern: &str, expected: &[&str]| {
            let entry = Entry { pattern: pattern.to_owned(), methods: vec![Method::GET] };
            assert_eq!(entry.paths(), expected, "{pattern}");
        };
        check("", &[""]);
        check("/events", &["/events"]);
        check("/{c:breeds|scales}/{name}", &["/breeds/{name}", "/scales/{name}"]);
        check("/{c:gateways}/{name:.+}", &["/gateways/{name}"]);
        check("/a/{b}/{c:d|e}", &["/a/{b}/d", "/a/{b}/e"]);
    }
}
