//! What an unquoted scalar is: the YAML 1.1 rules that users of blueprints know, less the octal and sexagesimal numbers.

/// What the text of a scalar stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarKind {
    /// Text; every quoted scalar is.
    Text,
    /// `true`, `no`, `on` and their like.
    Boolean(bool),
    /// A whole number, such as `12`, `1_000` or `0x1F`.
    Integer(i128),
    /// Any other number, such as `0.5` or `1e5`; `.inf` and `.nan` too.
    Decimal(f64),
}

/// Whether an unquoted `text` is null.
pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// What an unquoted `text` that is not null stands for.
pub(super) fn resolve(text: &str) -> ScalarKind {
    boolean(text).map(ScalarKind::Boolean).or_else(|| number(text)).unwrap_or(ScalarKind::Text)
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn number(text: &str) -> Option<ScalarKind> {
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    match digits {
        ".inf" | ".Inf" | ".INF" if negative => {
            return Some(ScalarKind::Decimal(f64::NEG_INFINITY));
        }
        ".inf" | ".Inf" | ".INF" => return Some(ScalarKind::Decimal(f64::INFINITY)),
        ".nan" | ".NaN" | ".NAN" if digits == text => return Some(ScalarKind::Decimal(f64::NAN)),
        _ => {}
    }
    let plain: String = digits.chars().filter(|c| *c != '_').collect();
    if let Some(hex) = digits.strip_prefix("0x") {
        return radix(hex, 16, negative);
    }
    if let Some(binary) = digits.strip_prefix("0b") {
        return radix(binary, 2, negative);
    }
    if digits.starts_with('_') || !digits.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    if plain.bytes().all(|b| b.is_ascii_digit()) {
        if plain.len() > 1 && plain.starts_with('0') {
            return None;
        }
        return Some(plain.parse::<i128>().map_or_else(
            |_| ScalarKind::Decimal(signed(plain.parse().unwrap_or(f64::INFINITY), negative)),
            |value| ScalarKind::Integer(if negative { -value } else { value }),
        ));
    }
    if is_decimal(&plain) {
        Some(ScalarKind::Decimal(signed(plain.parse().ok()?, negative)))
    } else {
        None
    }
}

fn signed(value: f64, negative: bool) -> f64 {
    if negative { -value } else { value }
}

fn radix(digits: &str, radix: u32, negative: bool) -> Option<ScalarKind> {
    let plain: String = digits.chars().filter(|c| *c != '_').collect();
    if plain.is_empty() || !plain.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    i128::from_str_radix(&plain, radix)
        .ok()
        .map(|value| ScalarKind::Integer(if negative { -value } else { value }))
}

/// Digits with at most one point and at most one exponent; at least one digit before the exponent.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_is_fine = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    digits(whole) && digits(fraction) && whole.len() + fraction.len() > 0 && exponent_is_fine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars() {
        let check =
            |text: &str, expected: ScalarKind| assert_eq!(resolve(text), expected, "{text}");
        for text in ["true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"] {
            check(text, ScalarKind::Boolean(true));
        }
        for text in ["false", "no", "off", "No", "OFF"] {
            check(text, ScalarKind::Boolean(false));
        }
        check("12", ScalarKind::Integer(12));
        check("-3", ScalarKind::Integer(-3));
        check("+3", ScalarKind::Integer(3));
        check("0", ScalarKind::Integer(0));
        check("1_000", ScalarKind::Integer(1000));
        check("0x1F", ScalarKind::Integer(31));
        check("0b101", ScalarKind::Integer(5));
        check("0.5", ScalarKind::Decimal(0.5));
        check(".5", ScalarKind::Decimal(0.5));
        check("64.", ScalarKind::Decimal(64.0));
        check("1e5", ScalarKind::Decimal(1e5));
        check("-1.5E-3", ScalarKind::Decimal(-1.5e-3));
        check(".inf", ScalarKind::Decimal(f64::INFINITY));
        check("-.INF", ScalarKind::Decimal(f64::NEG_INFINITY));
        check(&"9".repeat(50), ScalarKind::Decimal(1e50));
        for text in [
            "010",
            "1:30",
            "10:30:00",
            "0o17",
            "2017-01-01",
            "y",
            "n",
            ".",
            "-",
            "_1",
            "1e",
            "e5",
            "1.2.3",
            "0x",
            "0xg",
            "inf",
            "1,5",
            "tRue",
            "00",
            "1 2",
            "--1",
            "2017-01-01T10:00:00Z",
        ] {
            check(text, ScalarKind::Text);
        }
    }

    #[test]
    fn nulls() {
        for text in ["", "~", "null", "Null", "NULL"] {
            assert!(is_null(text), "{text}");
        }
        assert!(!is_null("nil") && !is_null("nULL"));
    }
}
