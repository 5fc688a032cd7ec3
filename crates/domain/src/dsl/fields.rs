//! Readers of single fields: texts, numbers, units, and the values that several kinds of artifact share.

use super::{
    reader::{Element, Fields, Reading},
    tree::{Scalar, ScalarKind, Value},
};
use crate::{
    artifact::{self, Cpu, Memory, Metadata, Percentage, Port, PortType},
    problem::ProblemKind,
};

/// Any scalar as text: numbers keep their spelling, booleans become `true` or `false`.
pub(super) fn text(element: &Element<'_>, reading: &mut Reading) -> Option<String> {
    let text = scalar_text(element);
    if text.is_none() {
        reading.wrong_type(element, "text");
    }
    text
}

/// The text of any scalar, without a word when it is none.
pub(super) fn scalar_text(element: &Element<'_>) -> Option<String> {
    element.node.text()
}

/// A general name.
pub(super) fn general_name(element: &Element<'_>, name: &str, reading: &mut Reading) -> bool {
    name_where(element, name, artifact::is_general_name, reading)
}

/// A name that is legal where `is_legal` says so.
pub(super) fn name_where(
    element: &Element<'_>,
    name: &str,
    is_legal: fn(&str) -> bool,
    reading: &mut Reading,
) -> bool {
    let is_legal = is_legal(name);
    if !is_legal {
        let detail = format!("'{name}' is no name");
        let hint = "a name has one or more characters and no white space, '/', '[' or ']'";
        reading.refuse(element.problem(ProblemKind::IllegalName, detail).hint(hint));
    }
    is_legal
}

/// A whole number from `0` to `u32::MAX`.
pub(super) fn unsigned(element: &Element<'_>, reading: &mut Reading) -> Option<u32> {
    let number = integer(element, reading)?;
    let unsigned = u32::try_from(number).ok();
    if unsigned.is_none() {
        reading.wrong_type(element, "an integer from 0 to 4294967295");
    }
    unsigned
}

/// A whole number.
pub(super) fn integer(element: &Element<'_>, reading: &mut Reading) -> Option<i128> {
    let Value::Scalar(Scalar { kind: ScalarKind::Integer(number), .. }) = &element.node.value
    else {
        reading.wrong_type(element, "an integer");
        return None;
    };
    Some(*number)
}

/// A processor share: a number or text.
pub(super) fn cpu(element: &Element<'_>, reading: &mut Reading) -> Option<Cpu> {
    let text = match &element.node.value {
        Value::Scalar(Scalar { kind: ScalarKind::Integer(number), .. }) => Some(number.to_string()),
        Value::Scalar(Scalar { kind: ScalarKind::Decimal(_), text, .. }) => {
            Some(text.replace(['_', '+'], ""))
        }
        _ => element.plain_text().map(str::to_owned),
    };
    let cpu = text.and_then(|text| text.parse().ok());
    if cpu.is_none() {
        reading.wrong_type(element, "a cpu quantity such as 0.5 or 500m");
    }
    cpu
}

/// An amount of memory: text with a unit.
pub(super) fn memory(element: &Element<'_>, reading: &mut Reading) -> Option<Memory> {
    let memory = element.plain_text().and_then(|text| text.parse().ok());
    if memory.is_none() {
        reading.wrong_type(element, "an amount of memory with its unit, such as 512MB or 1.5GB");
    }
    memory
}

/// A percentage: text with `%`.
pub(super) fn percentage(element: &Element<'_>, reading: &mut Reading) -> Option<Percentage> {
    let percentage = element.plain_text().and_then(|text| text.parse().ok());
    if percentage.is_none() {
        reading.wrong_type(element, "a whole percentage from 0% to 100%");
    }
    percentage
}

/// A duration in seconds: digits directly followed by a unit.
pub(super) fn duration_seconds(element: &Element<'_>, reading: &mut Reading) -> Option<u32> {
    let seconds = element.plain_text().and_then(parse_duration);
    if seconds.is_none() {
        reading.wrong_type(element, "a duration such as 10s, 5m or 1h");
    }
    seconds
}

fn parse_duration(text: &str) -> Option<u32> {
    let unit_begin = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at(unit_begin);
    let factor = match unit {
        "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hrs" | "hour" | "hours" => 3600,
        _ => return None,
    };
    digits.parse::<u32>().ok()?.checked_mul(factor)
}

/// A port as text gives it (documents, section 2.3); `range_problem` is what a number outside the range is called.
pub(super) fn port(
    element: &Element<'_>,
    text: &str,
    range_problem: ProblemKind,
    reading: &mut Reading,
) -> Option<Port> {
    let (before, kind) = match text.rsplit_once('/') {
        Some((before, suffix)) if suffix.eq_ignore_ascii_case("http") => (before, PortType::Http),
        Some((before, suffix)) if suffix.eq_ignore_ascii_case("tcp") => (before, PortType::Tcp),
        // A reference such as `$conf://web.port`: the number is known when it is deployed.
        Some(_) if text.starts_with('$') => (text, PortType::Http),
        Some((_, suffix)) => {
            let detail = format!("'{suffix}' is no protocol of a port");
            let problem = element.problem(ProblemKind::UnsupportedProtocol, detail);
            reading.refuse(problem.hint("the protocols are http and tcp"));
            return None;
        }
        None => (text, PortType::Http),
    };
    let has_suffix = before.len() != text.len();
    let digits = before.strip_prefix(['-', '+']).unwrap_or(before);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        if has_suffix {
            reading.wrong_type(element, "a port such as 8080, 8080/http or 9000/tcp");
            return None;
        }
        return Some(Port { text: text.to_owned(), number: 0, kind });
    }
    let Ok(number) = before.parse() else {
        let detail = format!("'{text}' is no port number");
        reading.refuse(element.problem(range_problem, detail).hint("ports are 0 to 65535"));
        return None;
    };
    Some(Port { text: text.to_owned(), number, kind })
}

/// A map kept verbatim.
pub(super) fn json_map(element: &Element<'_>) -> Option<Metadata> {
    match element.node.to_json() {
        serde_json::Value::Object(map) => Some(map),
        _ => None,
    }
}

/// The name of a stored artifact in plain text, `{ref: x}` or `{reference: x}`; `None` when this is no reference.
pub(super) enum Reference {
    /// It is one; the name is `None` when it was refused.
    To(Option<String>),
    /// It is something else.
    No,
}

/// Whether `element` is a reference. Keys beside it in `tolerated` are accepted.
pub(super) fn reference(
    element: &Element<'_>,
    tolerated: &[&'static str],
    reading: &mut Reading,
) -> Reference {
    reference_where(element, tolerated, artifact::is_general_name, reading)
}

/// Whether `element` is a reference to something whose names `is_legal` knows.
pub(super) fn reference_where(
    element: &Element<'_>,
    tolerated: &[&'static str],
    is_legal: fn(&str) -> bool,
    reading: &mut Reading,
) -> Reference {
    if let Some(name) = element.plain_text() {
        let is_name = name_where(element, name, is_legal, reading);
        return Reference::To(is_name.then(|| name.to_owned()));
    }
    if !element.is_map() {
        return Reference::No;
    }
    let Some(mut fields) = Fields::open(element, reading) else { return Reference::No };
    if !fields.has("ref") && !fields.has("reference") {
        return Reference::No;
    }
    let name = referred(&mut fields, is_legal, reading);
    fields.ignore(tolerated, reading);
    fields.close(reading);
    Reference::To(name.map(|(name, _)| name))
}

/// What `ref` or `reference` names, or both when they say the same, and where.
pub(super) fn referred<'n>(
    fields: &mut Fields<'n>,
    is_legal: fn(&str) -> bool,
    reading: &mut Reading,
) -> Option<(String, Element<'n>)> {
    let (short, long) = (fields.has("ref"), fields.has("reference"));
    let target = fields.take(if short { "ref" } else { "reference" }, reading);
    let name = target.and_then(|target| {
        let name = text(&target, reading)?;
        name_where(&target, &name, is_legal, reading).then_some((name, target))
    });
    if short && long {
        let said = name.as_ref().map(|(name, _)| name);
        let other = fields.take("reference", reading);
        if let Some(other) = other.filter(|other| scalar_text(other).as_ref() != said) {
            let detail = "'reference' says something else than 'ref'";
            reading.refuse(
                other.problem(ProblemKind::UnexpectedElement, detail).hint("keep one of the two"),
            );
        }
    }
    name
}
