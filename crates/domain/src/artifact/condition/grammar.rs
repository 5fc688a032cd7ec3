//! The grammar of conditions (documents, section 9), one function for each of its rules.
//!
//! Alternatives are tried in the order of the grammar. What was expected at the furthest place that any of them came
//! to is what the error says.

use super::{Expression, Operand};
use winnow::{
    ModalResult, Parser,
    ascii::Caseless,
    combinator::{alt, delimited, opt, preceded, repeat},
    error::ErrMode,
    stream::{Stateful, Stream},
    token::{one_of, take_while},
};

/// How long the text of a condition may be, in bytes.
pub const LENGTH_MAX: usize = 8192;
/// How deep parentheses may be nested.
pub const DEPTH_MAX: usize = 64;

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct ConditionError {
    /// How many characters of the text stand before the place where it goes wrong.
    pub offset: usize,
    /// What is wrong there.
    pub detail: String,
    /// What to write instead.
    pub hint: String,
}

impl ConditionError {
    /// Something is wrong with the text as a whole.
    pub(super) fn whole(detail: String, hint: &str) -> Self {
        Self { offset: 0, detail, hint: hint.to_owned() }
    }
}

/// Reads `text`.
pub(super) fn parse(text: &str) -> Result<Expression, ConditionError> {
    if text.len() > LENGTH_MAX {
        let detail = format!("the condition is longer than {LENGTH_MAX} bytes");
        return Err(ConditionError::whole(detail, "split it into several routes"));
    }
    let mut input = Input { input: text, state: Progress::default() };
    match expression.parse_next(&mut input) {
        Ok(parsed) if input.input.is_empty() => Ok(parsed),
        Ok(_) => {
            let rest = input.input.len();
            input.state.note(rest, "the end");
            Err(failure(text, &input.state))
        }
        Err(_) => Err(failure(text, &input.state)),
    }
}

type Input<'i> = Stateful<&'i str, Progress>;
type Parsed<T> = ModalResult<T, ()>;

/// How far the text was understood, and what would have gone on from there.
#[derive(Clone, Debug)]
struct Progress {
    /// How many bytes follow the furthest place.
    rest: usize,
    expected: Vec<&'static str>,
    depth: usize,
}

impl Default for Progress {
    fn default() -> Self {
        Self { rest: usize::MAX, expected: Vec::new(), depth: 0 }
    }
}

impl Progress {
    fn note(&mut self, rest: usize, expected: &'static str) {
        if rest < self.rest {
            self.rest = rest;
            self.expected.clear();
        }
        if rest == self.rest && !self.expected.contains(&expected) {
            self.expected.push(expected);
        }
    }
}

/// A test, for messages.
const A_TEST: &str =
    "a test such as 'host = shop.example', 'user-agent = Firefox', 'has cookie beta' or '< acl >'";

fn failure(text: &str, progress: &Progress) -> ConditionError {
    let at = text.len().saturating_sub(progress.rest);
    let found: String =
        text[at..].split_whitespace().next().unwrap_or_default().chars().take(40).collect();
    let offset = text[..at].chars().count();
    let detail = match (text[at..].chars().next(), found.is_empty()) {
        _ if progress.depth > DEPTH_MAX => {
            format!("parentheses are nested deeper than {DEPTH_MAX} levels")
        }
        (None, _) => "the condition ends too early".to_owned(),
        (Some(_), false) if !text[at..].starts_with(char::is_whitespace) => {
            format!("'{found}' does not fit here")
        }
        (Some(_), _) => "a blank does not fit here".to_owned(),
    };
    ConditionError { offset, detail, hint: format!("expected {}", progress.expected.join(", or ")) }
}

/// `parser`, with a word for what it expects.
fn expected<'i, T>(
    what: &'static str,
    mut parser: impl Parser<Input<'i>, T, ErrMode<()>>,
) -> impl Parser<Input<'i>, T, ErrMode<()>> {
    move |input: &mut Input<'i>| {
        let rest = input.eof_offset();
        let parsed = parser.parse_next(input);
        if parsed.is_err() {
            input.state.note(rest, what);
        }
        parsed
    }
}

fn expression(input: &mut Input<'_>) -> Parsed<Expression> {
    let or = expected("'or'", alt((Caseless("or"), "||", "|")));
    let first = term(input)?;
    let more: Vec<Expression> = repeat(0.., preceded((or, blank), term)).parse_next(input)?;
    Ok(several(first, more, Expression::Or))
}

fn term(input: &mut Input<'_>) -> Parsed<Expression> {
    let and = expected("'and'", alt((Caseless("and"), "&&", "&")));
    let first = factor(input)?;
    let more: Vec<Expression> = repeat(0.., preceded((and, blank), factor)).parse_next(input)?;
    Ok(several(first, more, Expression::And))
}

fn several(
    first: Expression,
    more: Vec<Expression>,
    join: impl Fn(Vec<Expression>) -> Expression,
) -> Expression {
    if more.is_empty() {
        return first;
    }
    join(std::iter::once(first).chain(more).collect())
}

fn factor(input: &mut Input<'_>) -> Parsed<Expression> {
    delimited(blanks, expected(A_TEST, alt((negation, group, operand))), blanks).parse_next(input)
}

fn negation(input: &mut Input<'_>) -> Parsed<Expression> {
    let not = alt((('!', blanks).void(), ("not", blank).void()));
    preceded(not, expected(A_TEST, alt((group, operand)))).map(negated).parse_next(input)
}

fn group(input: &mut Input<'_>) -> Parsed<Expression> {
    let rest = input.eof_offset();
    '('.parse_next(input)?;
    input.state.depth += 1;
    if input.state.depth > DEPTH_MAX {
        input.state.note(rest, "fewer parentheses");
        return Err(ErrMode::Cut(()));
    }
    let inner = expression(input)?;
    expected("')'", ')').parse_next(input)?;
    input.state.depth -= 1;
    Ok(inner)
}

fn operand(input: &mut Input<'_>) -> Parsed<Expression> {
    alt((host, agent, has_name, cookie_value, header_value, raw)).parse_next(input)
}

fn host(input: &mut Input<'_>) -> Parsed<Expression> {
    (Caseless("host"), compare, value)
        .map(|(_, differs, value)| test(Operand::Host(value), differs))
        .parse_next(input)
}

fn agent(input: &mut Input<'_>) -> Parsed<Expression> {
    let agent = expected("'user-agent'", Caseless("agent"));
    (Caseless("user"), opt(one_of(['-', '.'])), agent, compare, value)
        .map(|(_, _, _, differs, value)| test(Operand::UserAgent(value), differs))
        .parse_next(input)
}

/// The rules `hasHeader` and `hasCookie`.
fn has_name(input: &mut Input<'_>) -> Parsed<Expression> {
    let what = alt((
        expected("'header'", Caseless("header")).value(Operand::Header as fn(String) -> Operand),
        expected("'cookie'", Caseless("cookie")).value(Operand::Cookie as fn(String) -> Operand),
    ));
    (presence, what, blank, value)
        .map(|(misses, operand, _, name)| test(operand(name), misses))
        .parse_next(input)
}

fn cookie_value(input: &mut Input<'_>) -> Parsed<Expression> {
    (Caseless("cookie"), blank, value, blank, contains, value)
        .map(|(_, _, name, _, misses, value)| test(Operand::CookieContains(name, value), misses))
        .parse_next(input)
}

fn header_value(input: &mut Input<'_>) -> Parsed<Expression> {
    (Caseless("header"), blank, value, blank, contains, value)
        .map(|(_, _, name, _, misses, value)| test(Operand::HeaderContains(name, value), misses))
        .parse_next(input)
}

fn raw(input: &mut Input<'_>) -> Parsed<Expression> {
    let text = take_while(1.., |c| !matches!(c, '<' | '>' | '\n'))
        .verify(|text: &str| !text.trim().is_empty());
    delimited('<', expected("an acl", text), expected("'>'", '>'))
        .map(|text: &str| Expression::Operand(Operand::Raw(text.trim().to_owned())))
        .parse_next(input)
}

/// Whether the two are to differ.
fn compare(input: &mut Input<'_>) -> Parsed<bool> {
    let equal = expected("'='", alt(("==", "=")));
    let different = expected("'!='", alt(("!=", "!")));
    let has = expected("'has'", alt((Caseless("has"), Caseless("contains"))));
    alt((
        (blanks, equal, blanks).value(false),
        (blanks, different, blanks).value(true),
        (blank, expected("'not'", "not"), blank).value(true),
        (blanks, has, blank).value(false),
        (blank, expected("'is'", Caseless("is")), blank).value(false),
        (blanks, expected("'misses'", Caseless("misses")), blank).value(true),
    ))
    .parse_next(input)
}

fn contains(input: &mut Input<'_>) -> Parsed<bool> {
    expected("'has'", expected("'misses'", presence)).parse_next(input)
}

/// The rule `contains`, without a word when nothing of it is there: whether something is to be absent.
fn presence(input: &mut Input<'_>) -> Parsed<bool> {
    let has = alt((Caseless("has"), Caseless("contains")));
    let misses = Caseless("misses");
    alt(((blanks, has, blank).value(false), (blanks, misses, blank).value(true))).parse_next(input)
}

fn value(input: &mut Input<'_>) -> Parsed<String> {
    let is_value = |c: char| !c.is_whitespace() && !matches!(c, '(' | ')');
    expected("a value", take_while(1.., is_value)).map(str::to_owned).parse_next(input)
}

fn blanks<'i>(input: &mut Input<'i>) -> Parsed<&'i str> {
    take_while(0.., char::is_whitespace).parse_next(input)
}

fn blank<'i>(input: &mut Input<'i>) -> Parsed<&'i str> {
    expected("a blank", take_while(1.., char::is_whitespace)).parse_next(input)
}

fn test(operand: Operand, is_negated: bool) -> Expression {
    let operand = Expression::Operand(operand);
    if is_negated { negated(operand) } else { operand }
}

fn negated(expression: Expression) -> Expression {
    Expression::Not(Box::new(expression))
}
