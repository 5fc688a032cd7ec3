//! Conditions of routes: which requests a route asks for (documents, sections 5 and 9).
//!
//! [`Condition::parse`] reads the language, `Display` of an [`Expression`] prints its canonical form, and
//! [`Expression::normal_form`] gives what a proxy without parentheses can express. What an operand is in the words of
//! a proxy is not known here, nor where in a document a condition stands.

mod grammar;
mod normal;

pub use grammar::{ConditionError, DEPTH_MAX, LENGTH_MAX};
pub use normal::{LITERALS_MAX, Literal, OPERANDS_MAX, TERMS_MAX, TooLarge};

use super::Metadata;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A condition: its text as it was given, and what that says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Condition {
    text: String,
    expression: Expression,
    terms: Vec<Vec<Literal>>,
}

/// A stored condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCondition {
    /// The name.
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// The condition.
    pub condition: Condition,
}

/// The condition of a route: written in place, or the name of a stored one. Stored gateways have the former only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteCondition {
    /// Written in place.
    Inline(Condition),
    /// The name of a stored condition.
    Reference(String),
}

/// What a condition says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expression {
    /// One test.
    Operand(Operand),
    /// The opposite.
    Not(Box<Expression>),
    /// All of them, two or more.
    And(Vec<Expression>),
    /// At least one of them, two or more.
    Or(Vec<Expression>),
}

/// One test of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operand {
    /// The host asked for is this.
    Host(String),
    /// The user agent is this, a known short name or a part of what it calls itself.
    UserAgent(String),
    /// There is a header of this name.
    Header(String),
    /// There is a cookie of this name.
    Cookie(String),
    /// The header of this name contains this.
    HeaderContains(String, String),
    /// The cookie of this name contains this.
    CookieContains(String, String),
    /// A test in the proxy's own words.
    Raw(String),
}

impl Condition {
    /// Reads `text`; the error says where it goes wrong and what was expected there.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let expression = grammar::parse(text)?;
        let terms = expression.normal_form().map_err(|too_large| {
            ConditionError::whole(too_large.to_string(), "split it into several routes")
        })?;
        Ok(Self { text: text.to_owned(), expression, terms })
    }

    /// All of `text` as one test in the proxy's own words.
    pub fn raw(text: &str) -> Self {
        let operand = Operand::Raw(text.trim().to_owned());
        let terms = vec![vec![Literal { operand: operand.clone(), negated: false }]];
        Self { text: text.to_owned(), expression: Expression::Operand(operand), terms }
    }

    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it says.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// The alternatives, one of which has to hold, as lists of tests that all have to hold: none for a condition that
    /// never holds, one without tests for one that always does.
    pub fn terms(&self) -> &[Vec<Literal>] {
        &self.terms
    }
}

/// What the log keeps is the text. Text that was stored without being of the language stands for itself.
impl From<String> for Condition {
    fn from(text: String) -> Self {
        Self::parse(&text).unwrap_or_else(|_| Self::raw(&text))
    }
}

impl From<Condition> for String {
    fn from(condition: Condition) -> String {
        condition.text
    }
}

impl RouteCondition {
    /// The condition when it is written in place.
    pub fn inline(&self) -> Option<&Condition> {
        match self {
            RouteCondition::Inline(condition) => Some(condition),
            RouteCondition::Reference(_) => None,
        }
    }
}

/// The canonical form: reading it gives the same expression.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Operand(operand) => operand.fmt(f),
            Expression::Not(inner) => {
                f.write_str("not ")?;
                part(inner, matches!(**inner, Expression::Operand(_)), f)
            }
            Expression::And(parts) => joined(parts, " and ", f, |part| {
                matches!(part, Expression::Operand(_) | Expression::Not(_))
            }),
            Expression::Or(parts) => {
                joined(parts, " or ", f, |part| !matches!(part, Expression::Or(_)))
            }
        }
    }
}

/// As the language writes it.
impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Host(value) => write!(f, "host = {value}"),
            Operand::UserAgent(value) => write!(f, "user-agent = {value}"),
            Operand::Header(name) => write!(f, "has header {name}"),
            Operand::Cookie(name) => write!(f, "has cookie {name}"),
            Operand::HeaderContains(name, value) => write!(f, "header {name} has {value}"),
            Operand::CookieContains(name, value) => write!(f, "cookie {name} has {value}"),
            Operand::Raw(text) => write!(f, "< {text} >"),
        }
    }
}

fn joined(
    parts: &[Expression],
    between: &str,
    f: &mut fmt::Formatter<'_>,
    is_plain: impl Fn(&Expression) -> bool,
) -> fmt::Result {
    for (index, inner) in parts.iter().enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        part(inner, is_plain(inner), f)?;
    }
    Ok(())
}

/// In parentheses unless it `is_plain` enough to stand without.
fn part(expression: &Expression, is_plain: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if is_plain { write!(f, "{expression}") } else { write!(f, "({expression})") }
}

#[cfg(test)]
mod tests;
