//! What is fuzzed: everything that reads text from outside. Each target takes any bytes, must not panic, and checks a
//! law where there is one. Shared between cargo-fuzz and the test that replays the corpus.

use segue_domain::artifact::{Condition, Expression, Literal, Operand, value};
use segue_domain::dsl::{self, Node, Options};
use segue_domain::problem::Problems;
use time::macros::datetime;

/// Conditions of more tests than this are not tried with every outcome of them.
const TESTS_MAX: usize = 6;

/// Any text as documents of every kind. What is printed of an artifact is read again and is the same.
pub fn documents(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for node in dsl::documents(text).unwrap_or_default() {
        let options = Options::default();
        let _ = dsl::document_key(&node);
        let _ = dsl::read_deployment_body(&node, &options);
        let _ = dsl::read_inline_scale(&node, &options);
        let _ = dsl::read_posted_event(&node);
        prints_the_same(&node, dsl::read_breed, dsl::write_breed);
        prints_the_same(&node, dsl::read_scale, dsl::write_scale);
        prints_the_same(&node, dsl::read_blueprint, dsl::write_blueprint);
        prints_the_same(&node, dsl::read_condition, dsl::write_condition);
        prints_the_same(&node, dsl::read_escalation, dsl::write_escalation);
        prints_the_same(&node, dsl::read_sla, dsl::write_sla);
        prints_the_same(&node, dsl::read_rewrite, dsl::write_rewrite);
        prints_the_same(&node, dsl::read_route, dsl::write_route);
        prints_the_same(&node, dsl::read_template, dsl::write_template);
        prints_the_same(&node, dsl::read_gateway, |gateway| {
            dsl::write_gateway(gateway, &dsl::GatewayView::default())
        });
    }
}

fn prints_the_same<T: PartialEq + std::fmt::Debug>(
    node: &Node,
    read: fn(&Node, &Options) -> Result<T, Problems>,
    write: impl Fn(&T) -> serde_json::Value,
) {
    let Ok(artifact) = read(node, &Options::default()) else { return };
    let printed = write(&artifact).to_string();
    let again = dsl::document(&printed).and_then(|node| read(&node, &Options::default()));
    assert_eq!(again.as_ref(), Ok(&artifact), "{printed}");
}

/// Any text as a condition. Its canonical form says the same, and so do its alternatives, for every outcome of its tests.
pub fn conditions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(condition) = Condition::parse(text) else { return };
    let canonical = condition.expression().to_string();
    let again = Condition::parse(&canonical).expect("the canonical form is of the language");
    assert_eq!(again.expression(), condition.expression(), "{canonical}");
    let mut tests = Vec::new();
    operands(condition.expression(), &mut tests);
    let mut literals = condition.terms().iter().flatten();
    // Short user agents stand for other tests.
    let is_other = |literal: &Literal| !tests.contains(&&literal.operand);
    if tests.len() > TESTS_MAX || literals.any(is_other) {
        return;
    }
    for row in 0..1_u32 << tests.len() {
        let holds = |operand: &Operand| {
            tests
                .iter()
                .position(|test| *test == operand)
                .is_some_and(|index| row >> index & 1 == 1)
        };
        let mut terms = condition.terms().iter();
        let one = terms.any(|term| term.iter().all(|one| holds(&one.operand) != one.negated));
        assert_eq!(one, is_true(condition.expression(), &holds), "{canonical} in row {row}");
    }
}

fn operands<'a>(expression: &'a Expression, found: &mut Vec<&'a Operand>) {
    match expression {
        Expression::Operand(operand) if !found.contains(&operand) => found.push(operand),
        Expression::Operand(_) => {}
        Expression::Not(inner) => operands(inner, found),
        Expression::And(parts) | Expression::Or(parts) => {
            for part in parts {
                operands(part, found);
            }
        }
    }
}

fn is_true(expression: &Expression, holds: &dyn Fn(&Operand) -> bool) -> bool {
    match expression {
        Expression::Operand(operand) => holds(operand),
        Expression::Not(inner) => !is_true(inner, holds),
        Expression::And(parts) => parts.iter().all(|part| is_true(part, holds)),
        Expression::Or(parts) => parts.iter().any(|part| is_true(part, holds)),
    }
}

/// Any text as a value with references.
pub fn values(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parsed = value::parse(text);
    let interpolated = value::interpolate(text, |_| Some("x".to_owned()));
    if !text.contains('$') {
        assert!(parsed.is_ok());
        assert_eq!(interpolated, text);
    }
    if let Err(error) = parsed {
        assert_eq!(text.chars().nth(error.offset), Some('$'), "{text}");
    }
}

/// Any text as the query of events.
pub fn queries(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for node in dsl::documents(text).unwrap_or_default() {
        let _ = dsl::read_event_query(&node, datetime!(2030-01-10 15:33:49.766 UTC));
    }
}

/// Any text as a time in a query, at either end of what times there are.
pub fn dates(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let body = serde_json::json!({ "timestamp": { "lte": text } }).to_string();
    let Ok(node) = dsl::document(&body) else { return };
    for now in [
        datetime!(2030-03-31 15:33:49.766 UTC),
        datetime!(2028-02-29 23:59:59.999 UTC),
        datetime!(-9999-01-01 0:00 UTC),
        datetime!(9999-12-31 23:59:59.999 UTC),
    ] {
        let _ = dsl::read_event_query(&node, now);
    }
}
